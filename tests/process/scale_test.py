"""Workers scaled 2 -> 4 -> 3 in a running job: every sample counts once in each data epoch; with `--throughput`, throughput follows."""

import json
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, "tests/process")
import numpy as np
from safetensors.numpy import save_file
from support.integer_job import IntegerJob
from support.jobs import Run, main, wait_for
from support.programs import program

# Computing is sleep, 0.3 s a step: so throughput says how many take part, on a busy machine too.
SLEEPER = """
name: "sleeper"
seed: 3
model {{ sleeping {{ layers: 2 forward_seconds: 0.05 input_gradient_seconds: 0.05 weight_gradient_seconds: 0.05 }} }}
data {{ safetensors {{ train: "{data}" }} batch: 20 }}
optimizer {{ sgd {{ rate: 0.01 }} }}
cluster {{ workers: 2 min_workers: 2 shards: 2 }}
checkpoint {{ at_end: false }}
threads: 1
steps: 100000
"""
STEPS = 10  # of one measurement
WITHIN = 0.1
ATTEMPTS = 6  # a machine that does something else for a moment makes one measurement wrong


def parley(*arguments):
    return subprocess.run([program("parley"), *arguments], capture_output=True, text=True, timeout=120)


def operate(job, *arguments):
    done = parley(*arguments, f"--coordinator=file:{job.out}/coordinator.address")
    assert done.returncode == 0, done
    return done.stdout


def contributors(log):
    """Of the newest view that the coordinator's log tells of."""
    views = [line for line in log.splitlines() if "contributors=" in line]
    return int(views[-1].rsplit("contributors=", 1)[1].split()[0]) if views else 0


def staleness(job):
    """Of each worker that has one."""
    members = json.loads(operate(job, "status", "--format=json"))["members"]
    return [int(member["staleness"]) for member in members if "staleness" in member]


def shows_staleness(job, consistency):
    """Of two workers."""
    clocked = not consistency.startswith("sync")
    assert ("STALENESS" in operate(job, "status")) == clocked
    if not clocked:
        assert staleness(job) == []
        return
    behind = wait_for("a worker that is behind", lambda: (found := staleness(job)) and max(found) > 0 and found, 60)
    assert len(behind) == 2, behind
    # The other one is at most so many clocks behind when this one pulls, and as many ahead when it pushes.
    assert "bound: 2" not in consistency or max(behind) <= 2 * (2 + 1), behind


def every_sample_counts_once(consistency, transport="local"):
    def test(where, runs):
        # In bounded and async four workers make their steps in half of the time.
        job = IntegerJob(where, workers=2, min_workers=1, epochs=25 if consistency.startswith("sync") else 30, pause="20ms", elements="70000,1000,7",
                         transport=transport, consistency=consistency)
        runs.append(job)
        take_part = lambda workers: wait_for(f"{workers} to take part", lambda: contributors(job.log("coordinator")) == workers, 60)
        job.wait_for_step(10)
        shows_staleness(job, consistency)
        said = operate(job, "scale", "workers", "4")
        # Its processes were started by hand, on this machine alone.
        command = f"YOUR_PROGRAM --job=FILE --coordinator=file:{job.out}/coordinator.address\n"
        assert "before: 2" in said and command in said and "submit" not in said, said
        for _ in range(2):
            job.start_worker()
        take_part(4)
        job.wait_for_step(job.step() + 10)
        operate(job, "scale", "workers", "3")
        take_part(3)
        gone = job.with_ordinal("worker", 3)
        assert job.wait_for_end([gone], 60) == {gone: 0}
        assert "was sent away" in job.log(gone), job.log(gone)
        assert "left, as it was told to member=worker-3" in job.log("coordinator")
        assert " lost member=" not in job.log("coordinator")
        job.wait_for_step(job.step() + 10)
        other = job.with_ordinal("worker", 0)
        operate(job, "drain", "worker-0")
        assert job.wait_for_end([other], 60) == {other: 0}
        take_part(2)
        ends = job.wait_for_end(list(job.processes))
        assert set(ends.values()) == {0}, ends
        job.check_sums()

    test.__name__ = f"every_sample_counts_once_{consistency.split()[0]}_{transport}{'_backup' if 'backup' in consistency else ''}"
    return test


def samples_per_second(run):
    """Over some steps, by this clock."""
    began = run.answer()
    start = time.monotonic()
    ended = run.wait_for_step(int(began["step"]) + STEPS)
    return (int(ended["samples"]) - int(began["samples"])) / (time.monotonic() - start)


def throughput_is(run, one, workers):
    """That of so many workers, where each makes `one`."""
    ratios = []
    for _ in range(ATTEMPTS):
        ratios.append(samples_per_second(run) / one / workers)
        if abs(ratios[-1] - 1) <= WITHIN:
            return
    raise AssertionError(f"with {workers} workers throughput was {ratios} of what it should be")


def throughput_follows(where, runs):
    x = np.zeros((200_000, 4), dtype=np.float32)
    save_file({"x": x, "y": np.zeros(len(x), dtype=np.int64)}, where / "data.safetensors")
    job = where / "job.textproto"
    job.write_text(SLEEPER.format(data=where / "data.safetensors"))
    run = Run(job)
    runs.append(run)
    run.wait_for_step(5)
    one = statistics.median(samples_per_second(run) for _ in range(3)) / 2

    def scale(workers):
        operate(run, "scale", "workers", str(workers))
        wait_for(f"{workers} to take part", lambda: contributors(run.logs()["coordinator"]) == workers, 120)
        assert int(run.answer()["wanted_workers"]) == workers
        throughput_is(run, one, workers)

    scale(4)
    scale(3)
    throughput_is(run, one, 3)
    said = run.stderr()
    assert "the job wants 4 workers, not 2 any more" in said and "the job wants 3 workers, not 4 any more" in said, said

    # What cannot be, and what to do instead.
    at = f"--coordinator=file:{run.out}/coordinator.address"
    for command, code, words in (
        (("scale", "workers", "1"), 1, ["2 workers at least", "parley stop"]),
        (("drain", "shard-1"), 1, ["shard 1", "cluster.shards", "parley stop"]),
        (("drain", "worker-7"), 1, ["no worker 7"]),
        (("drain", "seven"), 2, ["worker-3"]),
    ):
        done = parley(*command, at)
        assert done.returncode == code and all(word in done.stderr for word in words), done

    done = parley("stop", at, "--wait")
    assert done.returncode == 0, done
    folder = pathlib.Path(done.stdout.strip())
    assert (folder / "manifest.json").exists(), done
    assert run.wait(60) == 75, run.process.returncode
    assert "stopped by an operator" in run.stderr() and str(folder) in run.stderr(), run.stderr()
    assert (run.out / "stopped").exists()
    assert " lost member=" not in run.logs()["coordinator"]


if "--throughput" in sys.argv:
    main(throughput_follows)
main(
    every_sample_counts_once("sync { reduction: SUM }"),
    every_sample_counts_once("sync { reduction: SUM }", "grpc"),
    every_sample_counts_once("sync { reduction: SUM backup: 1 }", "direct"),
    every_sample_counts_once("bounded { bound: 2 reduction: SUM }"),
    every_sample_counts_once("async { reduction: SUM }"),
)
