"""The dashboard that is checked in is the one that its script makes; each panel tells what it is; its metrics are documented."""

import json
import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path("deploy/observability")


def same_as_made():
    made = subprocess.run([sys.executable, FOLDER / "make_dashboard.py", "--print"], check=True, capture_output=True, text=True).stdout
    assert made == (FOLDER / "grafana_dashboard.json").read_text(), "run deploy/observability/make_dashboard.py"


def importable(dashboard):
    variables = {one["name"]: one["type"] for one in dashboard["templating"]["list"]}
    assert variables == {"datasource": "datasource", "job": "query", "run": "query"}, variables
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids), ids
    taken = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                other = taken.setdefault((x, y), panel["title"])
                assert other == panel["title"], f"{other} and {panel['title']} lie on each other"


def panels_tell_what_they_are(dashboard):
    documented = set(re.findall(r"\bparley_\w+", pathlib.Path("docs/operating.md").read_text()))
    rows = 0
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            rows += 1
            continue
        title = panel["title"]
        assert len(panel["description"]) > 10, f"{title}: no description"
        assert panel["fieldConfig"]["defaults"]["unit"], f"{title}: no unit"
        assert panel["datasource"]["uid"] == "${datasource}", title
        assert panel["targets"], f"{title}: no queries"
        for target in panel["targets"]:
            query = target["expr"]
            assert target["legendFormat"] and target["datasource"]["uid"] == "${datasource}", query
            # Each series that it selects is of the chosen jobs, and their runs are told apart.
            selectors = re.findall(r"\{[^}]*\}", query)
            assert selectors and all('job=~"$job",run=~"$run"' in selector for selector in selectors), query
            groups = re.findall(r"\bby \(([^)]*)\)", query)
            assert groups and all(group.startswith("job, run") for group in groups), query
            assert target["legendFormat"].startswith("{{job}} {{run}}"), target["legendFormat"]
            for metric in re.findall(r"\b(parley_\w+)", query):
                assert re.sub(r"_(bucket|sum|count)$", "", metric) in documented, f"{metric} is not in docs/operating.md"
    assert rows >= 8


# What other panels tell as well, or better.
NOT_SHOWN = {
    "parley_checkpoint_barriers_total",  # how long they take is shown
    "parley_checkpoint_last_step",  # parley_goes_back_to_step is, also where the job has written none
    "parley_wanted_workers",  # parley_expected_members is
}


def everything_that_is_measured_is_shown(dashboard):
    table = pathlib.Path("docs/operating.md").read_text().split("## Metrics")[1].split("## Logs")[0]
    measured = {name for line in table.splitlines() if line.startswith("| `parley_") for name in re.findall(r"`(parley_\w+)", line.split("|")[1])}
    assert len(measured) > 40, measured
    shown = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", []))
    missing = {name for name in measured if not re.search(rf"\b{name}(_bucket|_sum|_count)?\b", shown)}
    assert missing == NOT_SHOWN, f"in no panel: {sorted(missing - NOT_SHOWN)}; shown by now: {sorted(NOT_SHOWN - missing)}"


def panels_are_right_where_they_are_zero_or_large(dashboard):
    panels = {panel["title"]: panel for panel in dashboard["panels"]}
    # A job that is resumed at step 100000 has no checkpoint of its own yet, and would lose nothing.
    for title in ("Age (steps)", "Age (s)"):
        query = panels[title]["targets"][0]["expr"]
        assert "parley_goes_back_to_step" in query and "parley_checkpoint_last_step" not in query, query
    direct = panels["Calls over direct connections (1/s)"]["description"]
    assert "Always 0 with TLS" in direct, direct


same_as_made()
shown = json.loads((FOLDER / "grafana_dashboard.json").read_text())
importable(shown)
panels_tell_what_they_are(shown)
everything_that_is_measured_is_shown(shown)
panels_are_right_where_they_are_zero_or_large(shown)
print(f"{len(shown['panels'])} panels")
