"""Whatever ends `parley run`, its children end with it."""

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
        run.process.send_signal(number)
        began = time.monotonic()
        code = run.wait(allowed + 1)
        wait_for("all children to be gone", lambda: not any(alive(pid) for pid in pids.values()), allowed)
        print(f"{number.name}: all gone after {time.monotonic() - began:.1f} s, exit status {code}")
        assert code == expected, code

    test.__name__ = f"end_by_{number.name}"
    return test


main(
    end_by(signal.SIGINT, 5, 1),
    end_by(signal.SIGTERM, 20, 75),  # it writes a checkpoint first
    end_by(signal.SIGKILL, 5, -signal.SIGKILL),
)
