"""Workers and the coordinator are killed, stopped and replaced at random moments, round after round: every sample counts once.

Each round is a job of its own, whose seed is printed; `--seed=N --rounds=1` repeats one.
"""

import argparse
import itertools
import random
import signal
import sys
import time

sys.path.insert(0, "tests/process")
from support.integer_job import TRANSPORTS, IntegerJob
from support.jobs import main, wait_for

WORKERS = 4
AT_ONCE = 3  # rounds; they mostly wait
STEPS = 90  # of an undisturbed job: 15 epochs of 6 steps


class Round:
    """One job and what is done to it. A fault leaves at least one worker alone (min_workers is 1)."""

    def __init__(self, job, chance):
        self.job, self.chance = job, chance
        self.running = [f"worker-{i}" for i in range(WORKERS)]  # neither killed nor stopped
        self.stopped = []
        self.killed = []
        self.succeeded = []  # coordinators that were stopped until another one ruled

    def kill(self, victim):
        self.job.send(victim, signal.SIGKILL)
        self.running.remove(victim)
        self.killed.append(victim)

    def replace(self, victim):
        self.kill(victim)
        self.running.append(self.job.start_worker())

    def stop_past_its_lease(self, victim):
        self.job.send(victim, signal.SIGSTOP)
        self.running.remove(victim)
        lost = self.job.coordinator_logs().count(" lost ")
        wait_for(
            f"the lease of {victim} to end",
            lambda: self.job.coordinator_logs().count(" lost ") > lost or self.has_finished(),
            60,
        )
        self.job.send(victim, signal.SIGCONT)
        self.running.append(victim)

    def has_finished(self):
        """The job; its coordinator may still wait for a silent worker, until that must have given up."""
        return "phase=FINISHED" in self.job.coordinator_logs() or self.is_over()

    def is_over(self):
        return self.job.processes[self.job.ruler].poll() is not None

    def go_on_without(self, steps):
        """Until the shards have made so many steps without the coordinator; there may be none left."""
        leader = self.job.with_ordinal("shard", 0)
        target, end = self.job.step(leader) + steps, time.monotonic() + 3
        wait_for(f"step {target}", lambda: self.job.step(leader) >= target or time.monotonic() >= end, 10)

    def restart_coordinator(self):
        self.job.send(self.job.ruler, signal.SIGKILL)
        self.killed.append(self.job.ruler)
        self.go_on_without(self.chance.randint(0, 30))
        self.job.start_coordinator()

    def stop_coordinator(self):
        self.job.send(self.job.ruler, signal.SIGSTOP)
        self.go_on_without(self.chance.randint(0, 30))
        self.job.send(self.job.ruler, signal.SIGCONT)

    def succeed_coordinator(self):
        old = self.job.ruler
        self.job.send(old, signal.SIGSTOP)
        new = self.job.start_coordinator()
        wait_for(f"{new} to rule", lambda: " the job can be joined " in self.job.log(new) or self.is_over(), 60)
        self.job.send(old, signal.SIGCONT)
        self.succeeded.append(old)

    def disturb(self):
        step = 0
        for _ in range(self.chance.randint(1, 3)):
            step = self.chance.randint(step + 1, max(step + 1, STEPS * 2 // 3))
            wait_for(f"step {step}", lambda step=step: self.is_over() or self.job.step() >= step, 120)
            # A fault before may have taken longer than the rest of the job. Its coordinator records within a second or two that it
            # is over, from when on another one would begin a new job, and says that it cannot.
            if self.has_finished():
                return
            if self.chance.random() < 0.5:
                fault = self.chance.choice([self.restart_coordinator, self.stop_coordinator, self.succeed_coordinator])
                print(f"  step {step}: {fault.__name__}")
                fault()
                continue
            faults = [self.stop_past_its_lease, self.replace] + [self.kill] * (len(self.running) > 1)
            if len(self.running) < 2:
                return
            victim = self.chance.choice(self.running)
            fault = self.chance.choice(faults)
            print(f"  {self.job.out.parent.name} step {step}: {fault.__name__} {victim}", flush=True)
            fault(victim)


def late(log):
    """A replacement that came when all steps were decided has nothing to do, and says so."""
    return "came too late" in log or "FINISHED" in log or "no coordinator at" in log


def sums_are_exact(seed):
    def test(where, runs):
        print(f"seed {seed}")
        job = IntegerJob(where, workers=WORKERS, shards=2, min_workers=1, epochs=15, liveness="2s", pause="20ms",
                         # In some a tensor has two slices, of which one goes before the other.
                         elements="300000,1000,7" if seed % 4 == 1 else "70000,1000,7", transport=TRANSPORTS[seed % 3], tls=seed % 5 < 2,
                         extra='autonomy: "30s" bucket_kib: 256',
                         consistency=f"sync {{ reduction: SUM update_ahead: {str(seed % 2 == 0).lower()} }}")
        runs.append(job)
        round_ = Round(job, random.Random(seed))
        round_.disturb()
        left = [name for name in job.processes if name not in round_.killed]
        ends = job.wait_for_end(left, 180)
        for name, code in ends.items():
            if name in round_.succeeded:
                assert code == 1 and "rules no more" in job.log(name), (name, ends)
                continue
            assert code == 0 or (name.startswith("worker") and late(job.log(name))), (name, ends)
        assert any("the sums are exact" in job.log(name) for name in ends if name.startswith("worker")), ends
        job.check_sums()

    test.__name__ = f"sums_are_exact_{seed}"
    return test


def each_transport_is_taken(where, runs):
    """What a worker is to send its tensors by is what it sends them by."""
    for transport, tls in itertools.product(TRANSPORTS, (False, True)):
        job = IntegerJob(where / f"{transport}-{tls}", workers=1, shards=1, epochs=15, pause="20ms", transport=transport, tls=tls)
        runs.append(job)
        job.wait_for_step(20)
        if transport == "direct":
            wait_for("direct calls", lambda job=job: job.metric("shard-0", "parley_direct_calls_total") > 0, 30)
        else:
            assert job.metric("shard-0", "parley_direct_calls_total") == 0, transport
        job.wait_for_end(list(job.processes))


def shards_compute_updates_ahead(where, runs):
    """By each transport, and what they are decided with is as exact."""
    for transport in TRANSPORTS:
        job = IntegerJob(where / transport, workers=2, shards=1, epochs=10, pause="20ms", transport=transport,
                         consistency="sync { reduction: SUM update_ahead: true }", extra="bucket_kib: 256")
        runs.append(job)
        taken = 'parley_updates_ahead_total{outcome="taken"'
        wait_for("updates ahead that are taken", lambda job=job: job.metric("shard-0", taken) > 0, 60)
        ends = job.wait_for_end(list(job.processes))
        assert set(ends.values()) == {0}, ends
        job.check_sums()


parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=10)
parser.add_argument("--seed", type=int, default=20261121)
options = parser.parse_args()
main(each_transport_is_taken, shards_compute_updates_ahead, *[sums_are_exact(options.seed + i) for i in range(options.rounds)], at_once=AT_ONCE)
