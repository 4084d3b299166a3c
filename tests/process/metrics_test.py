"""Every role's /metrics is what promtool accepts, holds what docs/operating.md lists, and moves."""

import json
import os
import re
import subprocess
import sys

sys.path.insert(0, "tests/process")
from support.jobs import Run, main, scrape, small_job, wait_for

PROMTOOL = os.environ.get("PARLEY_TEST_PROMTOOL", os.path.expanduser("~/.cache/parley/tools/promtool"))

EVERYWHERE = ["parley_build_info", "parley_step", "process_cpu_seconds_total", "process_resident_memory_bytes"]
BY_ROLE = {
    "coordinator": ["parley_members", "parley_job_epoch", "parley_view_epoch", "parley_samples_total", "parley_loss", 'parley_verdicts_total{outcome="apply"', "parley_rpc_duration_seconds_count"],
    "shard": ["parley_job_epoch", "parley_view_epoch", 'parley_pushes_total{outcome="added"', "parley_push_bytes_total", "parley_pull_bytes_total", 'parley_rpc_duration_seconds_count{code="OK",method="Push"'],
    "worker": [
        "parley_job_epoch", "parley_view_epoch",
        "parley_samples_total", "parley_loss", "parley_push_bytes_total", "parley_pull_bytes_total",
        *(f'parley_step_phase_duration_seconds_count{{phase="{phase}"' for phase in ("data", "forward", "backward", "push", "wait", "pull")),
    ],
}
MOVING = {"coordinator": "parley_samples_total", "shard": "parley_push_bytes_total", "worker": "parley_samples_total"}


def value(text, name):
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(rf"{name}(\{{|\s)", line))


def role_of(text):
    return re.search(r'^parley_build_info{.*role="(\w+)"', text, re.M).group(1)


def every_endpoint_is_accepted_and_moves(where, runs):
    run = Run(small_job(where, epochs=100000))
    runs.append(run)
    run.wait_for_step(5)
    groups = json.loads((run.out / "targets.json").read_text())
    assert all(group["labels"]["job"] == "small" for group in groups), groups
    targets = [(role_of(scrape(target)), target) for group in groups for target in group["targets"]]
    assert sorted(role for role, _ in targets) == ["coordinator", "shard", "shard", "worker", "worker"], groups
    before = {}
    for role, target in targets:
        text = before[target] = scrape(target)
        done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True)
        assert done.returncode == 0, f"{role} at {target}: {done.stdout}{done.stderr}"
        for name in EVERYWHERE + BY_ROLE[role]:
            assert re.search(rf"^{re.escape(name)}", text, re.M), f"{role} has no {name}:\n{text}"
        samples = [line for line in text.splitlines() if line.startswith("parley_") and not line.startswith("#")]
        assert all(f'role="{role}"' in line and 'job="small"' in line and 'member="' in line for line in samples), role
    step = int(run.answer()["step"])
    run.wait_for_step(step + 10)
    for role, target in targets:
        after = scrape(target)
        for name in ("parley_step", MOVING[role]):
            assert value(after, name) > value(before[target], name), f"{role}: {name} does not move"
    for name in ("parley_job_epoch", "parley_view_epoch"):
        epochs = {target: value(text, name) for target, text in before.items()}
        assert len(set(epochs.values())) == 1 and 0 not in epochs.values(), f"{name} is not the same everywhere: {epochs}"
    print(f"{len(targets)} endpoints accepted by promtool, all moving")


main(every_endpoint_is_accepted_and_moves)
