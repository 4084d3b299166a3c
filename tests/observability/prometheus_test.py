"""A real Prometheus with deploy/observability's files follows real jobs: all targets come up and are followed as members go and
come, every query of the dashboard has data, and alerts fire when a job is hurt in the way that each is for.

What the test changes in its copies of the files, and nothing else: it scrapes and evaluates every second, the folder of the jobs is
its own, and an alert's minutes are seconds and its hours 20 seconds: thresholds and expressions are the shipped ones.
"""

import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

sys.path.insert(0, "tests/process")
import numpy as np
from safetensors.numpy import save_file
from support.jobs import Run, main, wait_for

PROMTOOL = os.environ.get("PARLEY_TEST_PROMTOOL", os.path.expanduser("~/.cache/parley/tools/promtool"))
PROMETHEUS = str(pathlib.Path(PROMTOOL).with_name("prometheus"))
FILES = pathlib.Path("deploy/observability")

# A step sleeps 40 ms, on any machine, and takes hardly any processor time.
JOB = """
name: "{name}"
seed: 1
model {{ sleeping {{ layers: 2 forward_seconds: 0.01 input_gradient_seconds: 0.005 weight_gradient_seconds: 0.005 }} }}
data {{ safetensors {{ train: "{data}" }} batch: 2 }}
optimizer {{ sgd {{ rate: 0.001 }} }}
threads: 1
steps: 1000000
{more}
"""
ELASTIC = 'cluster { workers: 2 min_workers: 1 shards: 2 } liveness: "3s" checkpoint { every_steps: 20 keep_last: 2 }'
# Nothing of it counts as lost while it is stopped.
PIPELINED = 'cluster { workers: 1 shards: 1 stages: 2 } pipeline { cut_before: "sleeping.1" } accumulate: 2 liveness: "300s"'
ASYNCHRONOUS = "cluster { workers: 1 shards: 1 } consistency { async {} }"

# What of the dashboard only some jobs have, and which job here is such a one; None: one with a GPU would be, and it is only asked
# whether Prometheus understands it. All else must have data for `elastic`.
ONLY = {
    "parley_pipeline_bubble_ratio": "pipelined",
    "parley_remote_references": "pipelined",
    "parley_stage_activation_bytes": "pipelined",
    'role="stage"': "pipelined",
    "parley_staleness_steps": "asynchronous",
    "parley_gpu_": None,
    "parley_loss_scale": None,
}


def shorter(match):
    number, unit = int(match["number"]), match["unit"]
    milliseconds = number * {"s": 1000, "m": 60000, "h": 3600000}[unit] // 60
    return f"{match['before']}{min(milliseconds, 20000)}ms{match['after']}"


class Prometheus:
    """One that follows the jobs linked into `targets`; runs of `main` in support/jobs.py are shown and ended like it."""

    def __init__(self, where):
        self.targets = where / "targets"
        self.targets.mkdir()
        configuration = (FILES / "prometheus.yml").read_text().replace("/shared/parley-targets", str(self.targets))
        configuration, intervals = re.subn(r"_interval: 10s", "_interval: 1s", configuration)
        assert str(self.targets) in configuration and intervals == 3, configuration
        # The default is longer than the interval now.
        (where / "prometheus.yml").write_text(configuration.replace("global:", "global:\n  scrape_timeout: 1s"))
        recorded, alerts = (FILES / "parley_rules.yml").read_text().split("name: parley_alerts")
        alerts, changes = re.subn(r"(?P<before>\[|for: )(?P<number>\d+)(?P<unit>[smh])(?P<after>\]|$)", shorter, alerts, flags=re.MULTILINE)
        assert changes >= 12, alerts
        (where / "parley_rules.yml").write_text(f"{recorded}name: parley_alerts{alerts}")
        subprocess.run([PROMTOOL, "check", "config", str(where / "prometheus.yml")], check=True)
        self._log = where / "prometheus.log"
        with open(self._log, "w") as log:
            self._process = subprocess.Popen(
                [PROMETHEUS, f"--config.file={where}/prometheus.yml", f"--storage.tsdb.path={where}/tsdb", "--web.listen-address=127.0.0.1:0"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )
        self._address = wait_for("Prometheus to listen", self._listening, 60)
        wait_for("Prometheus to be ready", self._ready, 60)

    def _listening(self):
        assert self._process.poll() is None, self._log.read_text()
        found = re.search(r'msg="Listening on" address=(\S+)', self._log.read_text())
        return found and found.group(1)

    def _ready(self):
        try:
            with urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=10):
                return True
        except urllib.error.HTTPError:
            return False

    def follow(self, name, run):
        """As prometheus.yml says that an operator does it."""
        (self.targets / f"{name}.json").symlink_to(run.out / "targets.json")

    def ask(self, path, **parameters):
        """What the HTTP API has for it."""
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} {parameters}: {error.read().decode()}") from error

    def targets_up(self):
        """Address to whether it is up, of all that Prometheus follows."""
        return {one["labels"]["instance"]: one["health"] == "up" for one in self.ask("targets", state="active")["activeTargets"]}

    def values(self, query, since):
        """All values of all its series, from a time until now."""
        series = self.ask("query_range", query=query, start=since, end=time.time(), step=1)["result"]
        return [float(value) for one in series for _, value in one["values"]]

    def fires(self, alert, job, since=None):
        """Whether it does, or has since a time."""
        query = f'ALERTS{{alertname="{alert}",alertstate="firing",job="{job}"}}'
        return bool(self.values(query, since) if since else self.ask("query", query=query)["result"])

    def logs(self):
        return {"prometheus": self._log.read_text()}

    def show(self):
        print(f"---- prometheus\n{self._log.read_text()[-6000:]}")

    def kill(self):
        self._process.kill()
        self._process.wait()


def listed(run):
    """The addresses in the job's targets.json."""
    return {target for group in json.loads((run.out / "targets.json").read_text()) for target in group["targets"]}


def metrics_address(run, name):
    found = re.search(r" serving .*\bmetrics=(\S+)", run.logs().get(name, ""))
    return found and found.group(1)


def follows(prometheus, runs):
    """Whether Prometheus has all members of the jobs and nobody else, and reaches them."""
    targets = prometheus.targets_up()
    return all(targets.values()) and set(targets) == set().union(*map(listed, runs))


def start(where, name, more):
    data = where / "data.safetensors"
    if not data.exists():
        save_file({"x": np.ones((64, 4), dtype=np.float32), "y": np.arange(64, dtype=np.int64) % 4}, data)
    (where / name).mkdir()
    job = where / name / "job.textproto"
    job.write_text(JOB.format(name=name, data=data, more=more))
    return Run(job)


def targets_are_followed(prometheus, jobs):
    elastic = jobs["elastic"]
    wait_for("all targets to be up", lambda: follows(prometheus, jobs.values()), 60)
    assert len(prometheus.targets_up()) == 13, prometheus.targets_up()
    print("all 13 targets are up")
    assert not prometheus.fires("ParleyMemberLost", "elastic", BEGAN)
    lost, killed = metrics_address(elastic, "worker-1"), time.time()
    elastic.lose_worker("worker-1")
    wait_for("the list without the lost worker", lambda: lost not in listed(elastic), 30)
    wait_for("Prometheus to forget the lost worker", lambda: lost not in prometheus.targets_up() and follows(prometheus, jobs.values()), 60)
    wait_for("ParleyMemberLost", lambda: prometheus.fires("ParleyMemberLost", "elastic", killed), 60)
    print("a killed worker is no target any more, and an alert has fired")
    elastic.start_late_worker()
    new = wait_for("the new worker to serve", lambda: metrics_address(elastic, "late"), 60)
    wait_for("Prometheus to find the new worker", lambda: prometheus.targets_up().get(new) and follows(prometheus, jobs.values()), 60)
    print("a new worker is a target")


def a_stopped_worker_is_told(prometheus, pipelined):
    wait_for("ParleyStepStuck not to fire", lambda: not prometheus.fires("ParleyStepStuck", "pipelined"), 120)
    worker, stopped = pipelined.pids()["worker-0"], time.time()
    os.kill(worker, signal.SIGSTOP)
    for alert in ("ParleyStepStuck", "ParleyProcessDown"):
        wait_for(alert, lambda alert=alert: prometheus.fires(alert, "pipelined", stopped), 120)
    os.kill(worker, signal.SIGCONT)
    for alert in ("ParleyStepStuck", "ParleyProcessDown"):
        wait_for(f"{alert} to end", lambda alert=alert: not prometheus.fires(alert, "pipelined"), 120)
    print("a stopped worker: alerts have fired, and are over")


def checkpoints_come_to_an_end(elastic):
    """Nothing can be written any more where they lie, as if the disk were gone. When that was."""
    place = elastic.out / "checkpoints"
    wait_for("a whole checkpoint", (place / "latest").exists, 120)
    for attempt in range(100):
        place.rename(elastic.out / f"checkpoints.away-{attempt}")
        try:
            place.touch(exist_ok=False)
            return time.time()
        except FileExistsError:
            pass  # the next one has begun in between, and has made the folder again
    raise AssertionError(f"{place} is made again and again")


def every_query_has_data(prometheus):
    dashboard = json.loads((FILES / "grafana_dashboard.json").read_text())
    queries = [(panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel.get("targets", [])]
    used, empty = set(), []
    for title, query in queries:
        only = next((part for part in ONLY if part in query), None)
        used.add(only)
        job = ONLY.get(only, "elastic")
        asked = query.replace("$job", job or "elastic").replace("$run", "out-.*").replace("$__rate_interval", "10s")
        assert "$" not in asked, asked
        if not any(map(math.isfinite, prometheus.values(asked, BEGAN))) and job is not None:
            empty.append(f"{title}: {asked}")
    assert not empty, "no data for\n  " + "\n  ".join(empty)
    assert used == {None, *ONLY}, f"not in the dashboard: {set(ONLY) - used}"
    print(f"{len(queries)} queries of the dashboard have data")


def every_rule_works(prometheus):
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert len(rules) >= 11 and all(rule["health"] == "ok" for rule in rules), rules
    for rule in rules:
        if rule["type"] == "recording":
            assert any(map(math.isfinite, prometheus.values(rule["name"], BEGAN))), f"{rule['name']} has recorded nothing"
    print(f"{len(rules)} rules are evaluated")


def a_job_that_ends_is_followed_no_more(prometheus, jobs):
    """Its alert's minute is a second here, in which Prometheus may not have looked at the list yet."""
    ended = jobs.pop("asynchronous")
    os.kill(ended.process.pid, signal.SIGTERM)
    assert ended.wait(60) == 75, ended.stderr()
    assert not listed(ended), listed(ended)
    wait_for("Prometheus to forget the job", lambda: follows(prometheus, jobs.values()), 60)
    wait_for("nobody to be called", lambda: not prometheus.fires("ParleyProcessDown", "asynchronous"), 60)
    print("a job that was told to end is followed no more")


def prometheus_follows_real_jobs(where, runs):
    prometheus = Prometheus(where)
    runs.append(prometheus)
    jobs = {}
    for name, more in (("elastic", ELASTIC), ("pipelined", PIPELINED), ("asynchronous", ASYNCHRONOUS)):
        jobs[name] = start(where, name, more)
        runs.append(jobs[name])
    for name, run in jobs.items():
        run.wait_for_step(5)
        prometheus.follow(name, run)
    targets_are_followed(prometheus, jobs)
    assert not prometheus.fires("ParleyCheckpointFails", "elastic", BEGAN)
    ended = checkpoints_come_to_an_end(jobs["elastic"])
    a_stopped_worker_is_told(prometheus, jobs["pipelined"])
    for alert in ("ParleyCheckpointFails", "ParleyCheckpointStale"):
        wait_for(alert, lambda alert=alert: prometheus.fires(alert, "elastic", ended), 180)
    print("checkpoints that cannot be written: alerts have fired")
    every_query_has_data(prometheus)
    every_rule_works(prometheus)
    a_job_that_ends_is_followed_no_more(prometheus, jobs)


BEGAN = time.time()
main(prometheus_follows_real_jobs)
