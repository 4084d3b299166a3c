"""A worker or stage whose training thread hangs in the middle of a step, where nobody tells it anything: it ends with its job all the same.

The hang is a model that sleeps in its backward pass, longer than anything here is waited for: a GPU or a disk that does not answer looks like it.
"""

import signal
import sys
import time

sys.path.insert(0, "tests/process")
import numpy as np
from safetensors.numpy import save_file
from support.by_hand import WITHOUT_STAGES, ByHand
from support.jobs import last_line, main, wait_for

JOB = """
name: "hung"
seed: 1
model {{ sleeping {{ layers: 2 weight_gradient_seconds: 60 }} }}
data {{ safetensors {{ train: "{data}" }} batch: 2 shuffle: false }}
optimizer {{ sgd {{ rate: 0.001 }} }}
threads: 1
autonomy: "0s"
steps: 10
checkpoint {{ at_end: false }}
{extra}
"""
PIPELINE = 'cluster { workers: 1 shards: 1 stages: 2 } pipeline { cut_before: "sleeping.1" }'


def hung(where, runs, extra, members=WITHOUT_STAGES):
    """All hang in their first step."""
    save_file({"x": np.ones((80, 4), dtype=np.float32), "y": np.arange(80, dtype=np.int64) % 4}, where / "data.safetensors")
    job = where / "job.textproto"
    job.write_text(JOB.format(data=where / "data.safetensors", extra=extra))
    hand = ByHand(job, members)
    runs.append(hand)
    hand.wait_for_log("coordinator", " phase=TRAINING")
    time.sleep(1)  # so that each is inside its model
    return hand


def lose(victim, name, cluster, members=WITHOUT_STAGES, liveness=4):
    def test(where, runs):
        hand = hung(where, runs, f'{cluster} liveness: "{liveness}s" max_restarts: 0', members)
        who, address = hand.place(victim), hand.address(victim)
        cause = hand.kill_and_await_the_end_of_all(victim, liveness)
        assert f"{who} at {address}" in cause, cause

    test.__name__ = name
    return test


def who_is_left_behind_and_hangs(where, runs):
    """The job has gone on without it, and it does not come back to hear of that: it is given a step's time."""
    hand = hung(where, runs, 'cluster { workers: 2 shards: 1 min_workers: 1 } liveness: "1s" stall_timeout: "15s"', WITHOUT_STAGES[:1] + WITHOUT_STAGES[2:])
    worker = hand.processes["worker-0"]
    worker.send_signal(signal.SIGSTOP)
    wait_for("its lease to end", lambda: " lost member=" in hand.logs()["coordinator"], 20)
    worker.send_signal(signal.SIGCONT)
    went_on = time.monotonic()
    wait_for("it to end", lambda: worker.poll() is not None, 90)
    took = time.monotonic() - went_on
    assert worker.returncode == 1, worker.returncode
    last = last_line(hand.logs()["worker-0"])
    assert "has gone on without this process" in last, last
    assert took > 14, f"{took:.1f} s after it had woken"
    print(f"{took:.1f} s after it had woken: {last}")


main(
    lose("worker-1", "a_worker_hangs", "cluster { workers: 2 shards: 2 }"),
    lose("worker-0", "a_stage_hangs", PIPELINE, ("shard-0", "stage-0", "stage-1", "worker-0")),
    who_is_left_behind_and_hangs,
    at_once=3,  # they sleep
)
