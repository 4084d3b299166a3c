"""Whatever ends `parley run`, its children end with it, and all of them in time."""

import signal
import sys
import time

sys.path.insert(0, "tests/process")
from support.jobs import Run, alive, main, small_job, wait_for


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


main(
    end_by(signal.SIGINT, 5, 1),
    end_by(signal.SIGTERM, 20, 75),  # it writes a checkpoint first
    end_by(signal.SIGKILL, 5, -signal.SIGKILL),
)
