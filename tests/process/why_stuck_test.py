"""A shard stops answering: `parley why-stuck` names it, the workers' memory stays bounded, and all end with that cause."""

import json
import pathlib
import re
import signal
import subprocess
import sys

sys.path.insert(0, "tests/process")
from support.integer_job import IntegerJob
from support.jobs import last_line, main, wait_for
from support.programs import program

MIB = 1 << 20
LIVENESS = 20
ELEMENTS = 16 * MIB  # 64 MiB of float32, half of them on each shard
WINDOW = 4 * MIB


def resident(pid):
    """VmRSS in bytes."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) * 1024


def a_stopped_shard_is_the_root_cause(where, runs):
    job = IntegerJob(where, workers=2, shards=2, epochs=100000, liveness=f"{LIVENESS}s", elements=str(ELEMENTS),
                     window=str(WINDOW))
    runs.append(job)
    job.wait_for_step(3)
    workers = ["worker-0", "worker-1"]
    before = {name: resident(job.processes[name].pid) for name in workers}
    victim = job.with_ordinal("shard", 1)
    job.send(victim, signal.SIGSTOP)
    most = dict(before)

    def named():
        for name in workers:
            if job.processes[name].poll() is None:
                most[name] = max(most[name], resident(job.processes[name].pid))
        report = json.loads(job.why_stuck("--format=json"))
        causes = report["causes"]
        return report if causes and causes[0]["who"] == ["shard-1"] and "worker-0" in causes[0]["waiting"] else None

    report = wait_for("why-stuck to name the shard", named, LIVENESS)
    assert report["causes"][0]["kind"] == "silent", report
    print(report["root_cause"])

    others = [name for name in job.processes if name != victim]
    wait_for("the coordinator to give the shard up", lambda: job.processes["coordinator"].poll() is not None, 4 * LIVENESS)
    ends = job.wait_for_end(others, 4 * LIVENESS)
    assert set(ends.values()) == {1}, ends
    causes = {last_line(job.log(name)) for name in others}
    assert len(causes) == 1 and f"shard 1 at {job.serving(victim)['address']}" in causes.pop(), causes
    for name in workers:
        grown = most[name] - before[name]
        print(f"{name}: {before[name] // MIB} MiB, at most {grown // MIB} MiB more while the shard was stopped")
        # Unacknowledged pushes, once as messages and once as gRPC's bytes, with the allocator's slack. Without a
        # window they would be half of the model, twice.
        assert grown < 8 * WINDOW, (name, before, most)


def a_job_that_is_well_has_no_root_cause(where, runs):
    job = IntegerJob(where, workers=2, shards=2, epochs=100000, pause="20ms", elements="1000")
    runs.append(job)
    job.wait_for_step(3)
    text = job.why_stuck("--longer_than=60s")
    assert last_line(text).startswith("root cause: none: nothing waits for longer than 1m"), text
    for name in ("coordinator", "shard-0", "shard-1", "worker-0", "worker-1"):
        assert re.search(f"^{name} ", text, re.M), text


def the_coordinator_is_silent(where, runs):
    job = IntegerJob(where, workers=2, shards=2, epochs=100000, pause="20ms", elements="1000")
    runs.append(job)
    job.wait_for_step(3)
    job.send("coordinator", signal.SIGSTOP)
    # The members are found by the job's directory.
    text = wait_for("an answer", lambda: job.why_stuck(), 10)
    job.send("coordinator", signal.SIGCONT)
    assert last_line(text).startswith("root cause: coordinator at"), text
    assert re.search(r"^shard-1 ", text, re.M), text
    done = subprocess.run([program("parley"), "why-stuck", "--coordinator=127.0.0.1:1"], capture_output=True, text=True)
    assert done.returncode == 1 and "--out" in done.stderr, done
    done = subprocess.run([program("parley"), "why-stuck", "--coordinator=nowhere"], capture_output=True, text=True)
    assert done.returncode == 2, done


main(a_stopped_shard_is_the_root_cause, a_job_that_is_well_has_no_root_cause, the_coordinator_is_silent)
