"""Whatever ends `parley run`, its children end with it, and all of them in time."""

import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, "tests/process")
import numpy as np
from safetensors.numpy import save_file
from support.jobs import Run, alive, last_line, main, small_job, wait_for
from support.programs import program

# Forward sleeps: a step of 8 s, within which nobody hears anything.
SLOW = """
name: "slow"
seed: 3
model {{ sleeping {{ layers: 1 forward_seconds: 8 }} }}
data {{ safetensors {{ train: "{data}" }} batch: 20 }}
optimizer {{ sgd {{ rate: 0.01 }} }}
cluster {{ workers: 2 shards: 1 }}
threads: 1
steps: 100
"""


def slow_job(where):
    save_file({"x": np.zeros((600, 4), dtype=np.float32), "y": np.zeros(600, dtype=np.int64)}, where / "data.safetensors")
    job = where / "job.textproto"
    job.write_text(SLOW.format(data=where / "data.safetensors"))
    return job


def end_by(number, allowed, expected):
    def test(where, runs):
        run = Run(small_job(where, epochs=100000))
        runs.append(run)
        run.wait_for_step(3)
        pids = run.pids()
        assert len(pids) == 5, pids
        began = time.monotonic()
        run.process.send_signal(number)
        # Longer than is allowed, so that it can say how long it took.
        wait_for(
            "parley run and all its children to be gone",
            lambda: run.process.poll() is not None and not any(alive(pid) for pid in pids.values()),
            3 * allowed,
        )
        took = time.monotonic() - began
        print(f"{number.name}: all gone after {took:.2f} s, exit status {run.process.returncode}")
        assert run.process.returncode == expected, run.process.returncode
        assert took <= allowed, f"all gone after {took:.2f} s, {allowed} s are allowed"

    test.__name__ = f"end_by_{number.name}"
    return test


def targets(run):
    return json.loads((run.out / "targets.json").read_text())


def in_the_middle_of_a_long_step(where, runs):
    """All are killed then, the coordinator too, which has not recorded the end: `parley run` does."""
    job = slow_job(where)
    run = Run(job)
    runs.append(run)
    run.wait_for_step(1)
    assert len(targets(run)) == 4, targets(run)
    began = time.monotonic()
    run.process.send_signal(signal.SIGINT)
    assert run.wait(10) == 1, run.process.returncode
    took = time.monotonic() - began
    assert took > 2.5, f"it ended by itself after {took:.1f} s: nobody had to be killed"
    assert last_line(run.stderr()) == "interrupted by SIGINT", run.stderr()
    assert targets(run) == [], targets(run)
    assert not (run.out / "coordinator.address").exists()
    again = Run(job, "--resume", out=run.out)
    runs.append(again)
    again.wait_for_step(1)
    again.process.send_signal(signal.SIGINT)
    assert again.wait(10) == 1, again.process.returncode


def a_checkpoint_whose_coordinator_dies(where, runs):
    """`parley checkpoint` waits for the end of the step, but not for one who has gone."""
    run = Run(slow_job(where))
    runs.append(run)
    run.wait_for_step(1)
    asks = subprocess.Popen(
        [program("parley"), "checkpoint", f"--coordinator=file:{run.out}/coordinator.address"], stderr=subprocess.PIPE, text=True
    )
    try:
        said = asks.stderr.readline()
        assert "asked for a checkpoint" in said, said
        os.kill(run.pids()["coordinator"], signal.SIGKILL)
        killed = time.monotonic()
        rest = asks.communicate(timeout=60)[1]
    finally:
        asks.kill()
    print(f"it ended after {time.monotonic() - killed:.1f} s: {rest}")
    assert asks.returncode == 1 and "the coordinator has gone without a word of the checkpoint" in rest, rest


main(
    end_by(signal.SIGINT, 5, 1),
    end_by(signal.SIGTERM, 20, 75),  # it writes a checkpoint first
    end_by(signal.SIGKILL, 5, -signal.SIGKILL),
    in_the_middle_of_a_long_step,
    a_checkpoint_whose_coordinator_dies,
)
