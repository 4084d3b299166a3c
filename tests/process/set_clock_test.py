"""The clock of the machine is set by an hour, forward and back, while a job runs: nobody is lost, all go on; who hangs then is noticed as
soon as ever, and another coordinator knows how long somebody has been waited for.

The programs' clock is that of common/clock/testing/settable_clock.h: the machine's own is not touched.
"""

import os
import pathlib
import signal
import struct
import sys
import time

sys.path.insert(0, "tests/process")
from support.by_hand import WITHOUT_STAGES, ByHand
from support.jobs import alive, job_of_small_steps, last_line, main, wait_for

LIVENESS = 3  # seconds
SOON = 60  # not an hour, on a machine that is busy with other tests
HOUR = 3600
PLAIN = "workers: 2 shards: 2"
PIPELINE = "workers: 1 shards: 1 stages: 2"
STAGES = ("shard-0", "stage-0", "stage-1", "worker-0")


class Clock:
    """The programs' that are started while it is `ahead` of nothing."""

    def __init__(self, where):
        self.file = open(where / "clock", "wb+", buffering=0)
        self.set_ahead(0)
        os.environ["SETTABLE_CLOCK"] = str(where / "clock")
        os.environ["LD_PRELOAD"] = os.path.abspath("common/clock/libsettable_clock.so")

    def set_ahead(self, seconds):
        os.pwrite(self.file.fileno(), struct.pack("q", seconds * 10**9), 0)


def goes_on(hand, by):
    """For as long as it takes to lose somebody, twice."""
    before = hand.step()
    time.sleep(4 * LIVENESS)
    ended = {name: process.returncode for name, process in hand.processes.items() if process.poll() is not None}
    assert not ended, f"{by}: {ended}"
    log = hand.logs()["coordinator"]
    assert " lost member=" not in log, f"{by}: {log[-2000:]}"
    hand.wait_for_step(before + 10)
    for name, log in hand.logs().items():
        assert f"clock was set; only the times of these lines go by it by={by}" in log, f"{name}: {log[-2000:]}"
    print(f"{by}: from step {before} to {hand.step()} within {4 * LIVENESS} s")


def clock_is_set(cluster, members, hangs):
    def test(where, runs):
        clock = Clock(where)
        job = job_of_small_steps(where, liveness=f"{LIVENESS}s", epochs=100000, extra='autonomy: "0s"\nmax_restarts: 0\n')
        job.write_text(job.read_text().replace(PLAIN, cluster))
        hand = ByHand(job, members)
        runs.append(hand)
        hand.wait_for_step(5)
        assert "/libsettable_clock.so" in pathlib.Path(f"/proc/{hand.processes['coordinator'].pid}/maps").read_text()
        clock.set_ahead(HOUR)
        goes_on(hand, "1h")
        clock.set_ahead(-HOUR)
        goes_on(hand, "-2h")
        # It is set back once more while somebody is awaited who does not come.
        who = hand.place(hangs)
        hand.processes[hangs].send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        clock.set_ahead(-2 * HOUR)
        others = [process for name, process in hand.processes.items() if name != hangs]
        wait_for("all others to end", lambda: not any(alive(process.pid) for process in others), SOON)
        took = time.monotonic() - stopped
        causes = {last_line(log) for name, log in hand.logs().items() if name != hangs}
        assert len(causes) == 1 and who in causes.copy().pop(), causes
        print(f"{who} hangs: all others ended {took:.1f} s later (liveness {LIVENESS} s): {causes.pop()}")

    test.__name__ = f"clock_is_set_{hangs}"
    return test


def a_place_stays_empty(where, runs):
    """Its time does not begin later because the clock was set back: for the coordinator that takes over it would be in the future."""
    clock = Clock(where)
    job = job_of_small_steps(where, liveness=f"{LIVENESS}s", epochs=100000, extra='stall_timeout: "10s"\n')
    job.write_text(job.read_text().replace(PLAIN, "workers: 2 min_workers: 1 shards: 2") + "consistency { sync { lost_worker: WAIT } }\n")
    hand = ByHand(job)
    runs.append(hand)
    hand.wait_for_step(5)
    clock.set_ahead(-HOUR)
    who = hand.place("worker-1")
    hand.processes["worker-1"].kill()
    wait_for("the view without it", lambda: " lost member=" in hand.logs()["coordinator"], SOON)
    clock.set_ahead(-2 * HOUR)
    hand.processes["coordinator"].kill()
    hand.processes["coordinator"].wait()
    hand.start_coordinator()
    ends = hand.wait_for_end(2 * SOON)
    assert ends.pop("worker-1") == -signal.SIGKILL
    causes = {last_line(log) for name, log in hand.logs().items() if name != "worker-1"}
    assert set(ends.values()) == {1} and len(causes) == 1 and who in causes.copy().pop(), (ends, causes)
    print(f"{who} is lost, and nobody takes its place: {causes.pop()}")


main(a_place_stays_empty, clock_is_set(PLAIN, WITHOUT_STAGES, "shard-1"), clock_is_set(PIPELINE, STAGES, "stage-1"))
