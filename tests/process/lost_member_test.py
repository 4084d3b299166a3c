"""Each role in turn is killed in the middle of a job without restarts: all others end with 1 and the same first cause, in time.

Without `autonomy`, so that the coordinator's loss ends the job like any other; coordinator_test.py has the rest.
"""

import json
import os
import re
import signal
import sys
import time

sys.path.insert(0, "tests/process")
from support.by_hand import WITHOUT_STAGES, ByHand
from support.jobs import Run, alive, job_of_small_steps, last_line, main, wait_for

PLAIN = "workers: 2 shards: 2"
PIPELINE = "workers: 1 shards: 1 stages: 2"  # as many processes
STAGES = ("shard-0", "stage-0", "stage-1", "worker-0")


def job_file(where, cluster, liveness):
    job = job_of_small_steps(where, liveness=f"{liveness}s", epochs=100000, extra='autonomy: "0s"\nmax_restarts: 0\n')
    job.write_text(job.read_text().replace(PLAIN, cluster))
    return job


def check_cause(cause, who, address):
    assert f"{who} at {address}" in cause, cause
    step = re.search(r"last decided step (\d+)", cause)
    assert step and int(step.group(1)) >= 5, cause


def lose(victim, cluster=PLAIN, members=WITHOUT_STAGES, liveness=3):
    def test(where, runs):
        hand = ByHand(job_file(where, cluster, liveness), members)
        runs.append(hand)
        hand.wait_for_step(5)
        who, address = hand.place(victim), hand.address(victim)
        check_cause(hand.kill_and_await_the_end_of_all(victim, liveness), who, address)

    test.__name__ = f"lose_{victim}"
    return test


def lose_of_parley_run(victim, liveness=3):
    """It ends like the processes that it has started, and says what they say."""

    def test(where, runs):
        run = Run(job_file(where, PLAIN, liveness))
        runs.append(run)
        run.wait_for_step(5)
        pids, addresses = run.pids(), run.addresses()
        assert len(pids) == 5, pids
        os.kill(pids.pop(victim), signal.SIGKILL)
        wait_for("all others to end", lambda: not any(alive(pid) for pid in pids.values()), 4 * liveness)
        assert run.wait(20) == 1, run.process.returncode
        causes = {name: last_line(log) for name, log in run.logs().items() if name != victim}
        causes["parley run"] = last_line(run.stderr())
        assert len(causes) == 5 and len(set(causes.values())) == 1, causes
        check_cause(causes["parley run"], victim.replace("-", " "), addresses[victim])
        print(f"parley run without {victim}: {causes['parley run']}")

    test.__name__ = f"lose_{victim}_of_parley_run"
    return test


def one_that_has_to_be_killed(where, runs):
    # Its processes are missed by the alerts, which go by the targets: most of all where one hung.
    run = Run(job_file(where, PLAIN, 1))
    runs.append(run)
    run.wait_for_step(5)
    os.kill(run.pids()["worker-1"], signal.SIGSTOP)
    assert run.wait(60) == 1, run.process.returncode
    targets = json.loads((run.out / "targets.json").read_text())
    print(f"{last_line(run.stderr())}: {len(targets)} targets")
    assert targets


main(
    *[lose(victim) for victim in ("worker-1", "shard-0", "shard-1", "coordinator", "worker-0")],
    lose("stage-1", PIPELINE, STAGES, liveness=2),
    *[lose_of_parley_run(victim) for victim in ("shard-1", "coordinator")],
    one_that_has_to_be_killed,
    at_once=2,  # they mostly wait
)
