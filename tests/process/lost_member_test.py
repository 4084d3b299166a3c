"""Each role in turn is killed in the middle of a job without restarts: all others end with the same first cause, in time.

Without `autonomy`, so that the coordinator's loss ends the job like any other; coordinator_test.py has the rest.
"""

import os
import re
import signal
import sys
import time

sys.path.insert(0, "tests/process")
from support.jobs import Run, alive, last_line, main, small_job, wait_for

PLAIN = "workers: 2 shards: 2"
PIPELINE = "workers: 1 shards: 1 stages: 2"  # as many processes


def lose(victim, cluster=PLAIN, liveness=3):
    def test(where, runs):
        job = small_job(where, liveness=f"{liveness}s", epochs=100000, extra='autonomy: "0s"\nmax_restarts: 0\n')
        job.write_text(job.read_text().replace(PLAIN, cluster))
        run = Run(job)
        runs.append(run)
        run.wait_for_step(5)
        pids, addresses = run.pids(), run.addresses()
        assert len(pids) == 5, pids
        os.kill(pids[victim], signal.SIGKILL)
        killed = time.monotonic()

        others = {name: pid for name, pid in pids.items() if name != victim}
        # Twice the liveness is the promise; a machine that is busy with other tests gets some more here.
        wait_for("all others to end", lambda: not any(alive(pid) for pid in others.values()), 4 * liveness)
        took = time.monotonic() - killed
        assert run.wait(20) == 1, run.process.returncode

        causes = {name: last_line(log) for name, log in run.logs().items() if name != victim}
        causes["parley run"] = last_line(run.stderr())
        assert len(set(causes.values())) == 1, causes
        cause = causes["parley run"]
        role, _, ordinal = victim.partition("-")
        who = f"{role} {ordinal}" if ordinal else role
        assert f"{who} at {addresses[victim]}" in cause, cause
        step = re.search(r"last decided step (\d+)", cause)
        assert step and int(step.group(1)) >= 5, cause
        print(f"{victim}: all others ended {took:.1f} s after the kill (liveness {liveness} s): {cause}")

    test.__name__ = f"lose_{victim}"
    return test


main(
    *[lose(victim) for victim in ("worker-1", "shard-0", "shard-1", "coordinator", "worker-0")],
    lose("stage-1", cluster=PIPELINE, liveness=2),
)
