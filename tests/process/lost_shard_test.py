"""A shard is killed at a random moment of a job in sync, round after round: all go back to a checkpoint, and the sums are exact.

Each round is a job of its own, whose seed is printed; `--seed=N --rounds=1` repeats one. Another shard is started at once, as a
cluster's scheduler would, and the time from the death to the next decided step is printed: the lease, the load, and a step.
"""

import argparse
import random
import re
import signal
import sys
import time

sys.path.insert(0, "tests/process")
from support.integer_job import TRANSPORTS, IntegerJob
from support.jobs import main, wait_for

AT_ONCE = 3  # rounds; they mostly wait
STEPS = 120  # of an undisturbed job: 10 epochs of 12 steps
LIVENESS = 2  # seconds
took = []  # seconds to recover


def job_epoch(job):
    return len(re.findall(r" all go back to a checkpoint ", job.coordinator_logs())) + 1


def sums_are_exact(seed):
    def test(where, runs):
        chance = random.Random(seed)
        shards = chance.choice([1, 2, 3])
        job = IntegerJob(where, workers=2, shards=shards, epochs=10, liveness=f"{LIVENESS}s", pause="20ms",
                         elements="70000,1000,7", transport=TRANSPORTS[seed % 3], tls=seed % 5 < 2,
                         extra="max_restarts: 9 checkpoint { every_steps: 10 keep_last: 2 }")
        runs.append(job)
        living = [f"shard-{i}" for i in range(shards)]
        killed = []
        for _ in range(chance.choice([1, 1, 2])):
            wait_for("a whole checkpoint", lambda: " a checkpoint is whole " in job.coordinator_logs(), 60)
            step = job.step() + chance.randint(1, 25)
            wait_for(f"step {step}", lambda step=step: job.step() >= step or job.step() >= STEPS - 5, 60)
            if job.step() < 0 or "phase=FINISHED" in job.coordinator_logs():
                break
            victim = chance.choice(living)
            epoch = job_epoch(job)
            job.send(victim, signal.SIGKILL)
            began = time.monotonic()
            living.remove(victim)
            killed.append(victim)
            living.append(job.start_shard())
            wait_for("all to go back", lambda epoch=epoch: job_epoch(job) > epoch or has_ended(job), 60)
            if has_ended(job):
                break
            back = int(re.findall(r" all go back to a checkpoint .*?\bstep=(\d+)", job.coordinator_logs())[-1])
            wait_for("the next step", lambda back=back: job.step() > back or has_ended(job), 60)
            took.append(time.monotonic() - began)
            lost = re.findall(r" all go back to a checkpoint .*?\bsteps_lost=(\d+)", job.coordinator_logs())[-1]
            print(f"  seed {seed}: {victim} of {shards} killed after step {step}, back at step {back} ({lost} steps lost), "
                  f"the next step after {took[-1]:.1f} s", flush=True)
        ends = job.wait_for_end([name for name in job.processes if name not in killed], 180)
        assert all(code == 0 for code in ends.values()), ends
        assert all("the sums are exact" in job.log(name) for name in ends if name.startswith("worker")), ends
        job.check_sums()

    test.__name__ = f"sums_are_exact_{seed}"
    return test


def has_ended(job):
    return job.processes[job.ruler].poll() is not None or "phase=FINISHED" in job.coordinator_logs()


parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=10)
parser.add_argument("--seed", type=int, default=20261122)
options = parser.parse_args()
try:
    main(*[sums_are_exact(options.seed + i) for i in range(options.rounds)], at_once=AT_ONCE)
finally:
    if took:
        took.sort()
        print(f"{len(took)} recoveries: {took[0]:.1f} to {took[-1]:.1f} s, median {took[len(took) // 2]:.1f} s "
              f"(2 x liveness: {2 * LIVENESS} s)")
    # A shard may die when nothing is left to do; that is not what this test is for.
    if options.rounds >= 10 and len(took) < options.rounds / 2:
        sys.exit(f"only {len(took)} recoveries in {options.rounds} rounds")
