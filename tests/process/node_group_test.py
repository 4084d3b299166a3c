"""Node groups of real processes: the same bits as single workers with a quarter of the bytes, and exact sums whoever is killed.

`--rounds=N` kills so many ranks in the first part; `--seed=N` chooses which and when. Without `--all` the other networks have groups of two.
"""

import argparse
import os
import random
import re
import signal
import sys
import time

sys.path.insert(0, "tests/process")
from support import data
from support.bits import assert_same_bits
from support.integer_job import TRANSPORTS, IntegerJob
from support.jobs import WHOLE, Run, exported, main, scrape, wait_for

WORKERS = 4
AT_ONCE = 3  # rounds; they mostly wait
took = []  # seconds from the death of a rank to the second step after it

JOB = """
name: "group"
seed: 5
model {{ {model} }}
data {{ {data} batch: {batch} }}
optimizer {{ sgd {{ rate: 0.01 momentum: 0.9 }} clip_norm: 1 }}
consistency {{ sync {{ deterministic: true }} }}
cluster {{ workers: {workers} shards: 2 {cluster} }}
accumulate: 2
threads: 1
{length}
"""


TEXT = 'text { train: "book.txt" test_share: 0.2 length: 12 columns: 4 }'


def start(where, name, runs, cluster="", model="simple_cnn {}", train=256, batch=4, length="epochs: 2", kind='idx { directory: "data" }', workers=WORKERS):
    folder = where / name
    folder.mkdir()
    data.write_idx(folder / "data", train=train)
    (folder / "book.txt").write_text("it was a group, and its light shone. " * 80)
    (folder / "job.textproto").write_text(JOB.format(data=kind, model=model, batch=batch, workers=workers, cluster=cluster, length=length))
    run = Run(folder / "job.textproto")
    runs.append(run)
    return run


def metric(address, name):
    return sum(float(line.rsplit(" ", 1)[1]) for line in scrape(address).splitlines() if re.match(rf"{name}{{", line))


def pushed_bytes(run, steps):
    """Of the whole job, as shards and workers count them: the job is held at its end, until its coordinator is there again."""
    run.wait_for_step(1)
    coordinator = run.pids()["coordinator"]
    metrics = {name: re.search(r" serving .*\bmetrics=(\S+)", log).group(1) for name, log in run.logs().items() if " serving " in log}
    os.kill(coordinator, signal.SIGSTOP)
    shards, workers = ([address for name, address in metrics.items() if name.startswith(role)] for role in ("shard", "worker"))
    wait_for(f"step {steps}", lambda: all(metric(address, "parley_step") >= steps for address in shards + workers), 60)
    counted = [sum(metric(address, "parley_push_bytes_total") for address in each) for each in (shards, workers)]
    os.kill(coordinator, signal.SIGCONT)
    assert run.wait() == 0
    return counted


def a_group_computes_what_its_workers_do_alone(where, runs):
    """Bar 3: the same bits, a quarter of the bytes."""
    steps = 16  # two epochs of eight: each worker has a full batch in each of them
    alone = start(where, "alone", runs)
    from_alone = pushed_bytes(alone, steps)
    group = start(where, "group", runs, f"group: {WORKERS}")
    from_group = pushed_bytes(group, steps)
    print(f"bytes pushed, as shards and workers count them: {from_alone} by {WORKERS} workers, {from_group} by one group")
    assert from_alone[0] == from_alone[1] and from_group[0] == from_group[1], (from_alone, from_group)
    assert from_group[0] * WORKERS == from_alone[0], (from_group, from_alone)
    assert_same_bits(exported(group.out), exported(alone.out), "one group of four")


def samples_that_do_not_come_out_even_make_no_difference(where, runs):
    """The last step of an epoch has a partial batch for one worker and none for others; evaluations cover the test set."""
    ends = {}
    for name, cluster in {"alone": "", "group": f"group: {WORKERS}"}.items():
        run = start(where, name, runs, cluster, train=228)
        assert run.wait() == 0, name
        ends[name] = exported(run.out), re.findall(r"accuracy \S+", run.stdout())
    assert_same_bits(ends["group"][0], ends["alone"][0], "one group of four, uneven")
    assert len(ends["alone"][1]) >= 2 and ends["group"][1] == ends["alone"][1], ends["group"][1]


def other_networks_have_the_same_bits(where, runs):
    """Batch normalisation, whose buffers come from one worker, and tensors of many slices; dropout, of each rank its own."""
    workers = WORKERS if WHOLE else 2
    for model, options in {
        "resnet": dict(model="resnet { depth: 18 }", batch=3, length="steps: 2", train=100),
        "transformer": dict(model="transformer { width: 32 heads: 2 hidden: 48 layers: 2 dropout: 0.2 }", kind=TEXT, batch=3, length="steps: 6"),
    }.items():
        ends = {}
        for name, cluster in {"alone": "", "group": f"group: {workers}"}.items():
            run = start(where, f"{model}-{name}", runs, cluster, workers=workers, **options)
            assert run.wait() == 0, name
            ends[name] = exported(run.out)
        assert_same_bits(ends["group"], ends["alone"], f"{model}, one group of {workers}")


def sums_are_exact(seed):
    """Bar 4: a rank is killed at a random moment, another one takes its place, and every sample counts once."""

    def test(where, runs):
        print(f"seed {seed}")
        chance = random.Random(seed)
        groups = 2 if seed % 4 == 0 else 1
        # A pause is behind the gradients and before the word that all are sent: with a short one most of a step is the rest.
        pause, epochs = ("20ms", 15) if seed // 3 % 2 == 0 else ("2ms", 60)
        job = IntegerJob(where, workers=WORKERS, shards=2, epochs=epochs, liveness="2s", pause=pause, elements="300000,1000,7",
                         transport=TRANSPORTS[seed % 3], tls=seed % 5 < 2, group=WORKERS // groups, extra="max_restarts: 20")
        runs.append(job)
        running = [f"worker-{i}" for i in range(WORKERS)]
        step, steps = 0, epochs * 6
        for _ in range(chance.randint(1, 2)):
            step = chance.randint(step + 1, max(step + 1, steps // 2))
            job.wait_for_step(step)
            wait_a_moment(chance)
            victim = chance.choice(running)
            leader = job.with_ordinal("shard", 0)
            lost = job.coordinator_logs().count(" lost ")
            job.send(victim, signal.SIGKILL)
            began = time.monotonic()
            running.remove(victim)
            running.append(job.start_worker())
            wait_for("the loss to be noticed", lambda lost=lost: job.coordinator_logs().count(" lost ") > lost or has_ended(job), 60)
            at = job.step(leader)
            wait_for("the group to go on", lambda at=at, leader=leader: job.step(leader) > at + 1 or has_ended(job), 60)
            if has_ended(job):
                break
            took.append(time.monotonic() - began)
            print(f"  seed {seed}, {groups} group(s), pause {pause}: {victim} killed at step {at}, the second step after {took[-1]:.1f} s", flush=True)
        left = running + [name for name in job.processes if not name.startswith("worker")]
        ends = job.wait_for_end(left, 180)
        assert all(code == 0 for code in ends.values()), ends
        assert all("the sums are exact" in job.log(name) for name in running), ends
        job.check_sums()

    test.__name__ = f"sums_are_exact_{seed}"
    return test


def has_ended(job):
    return job.processes[job.ruler].poll() is not None or "phase=FINISHED" in job.coordinator_logs()


def a_rank_that_is_stopped_past_its_lease_comes_back(where, runs):
    """It is fenced, and what it has of the former composition counts no more; nobody else takes its place."""
    job = IntegerJob(where, workers=WORKERS, shards=2, epochs=15, liveness="2s", pause="20ms", group=WORKERS, extra="max_restarts: 9")
    runs.append(job)
    for victim in ("worker-1", "worker-3"):
        job.wait_for_step(job.step() + 5)
        lost = job.coordinator_logs().count(" lost ")
        job.send(victim, signal.SIGSTOP)
        wait_for(f"the lease of {victim} to end", lambda lost=lost: job.coordinator_logs().count(" lost ") > lost, 30)
        job.send(victim, signal.SIGCONT)
    ends = job.wait_for_end(list(job.processes))
    assert all(code == 0 for code in ends.values()), ends
    job.check_sums()


def a_lost_shard_takes_the_group_back(where, runs):
    """The job goes back to a checkpoint, and the same processes are a group of the new time."""
    job = IntegerJob(where, workers=WORKERS, shards=2, epochs=15, liveness="2s", pause="20ms", group=WORKERS, transport="direct",
                     extra="max_restarts: 9 checkpoint { every_steps: 10 }")
    runs.append(job)
    wait_for("a whole checkpoint", lambda: " a checkpoint is whole " in job.coordinator_logs(), 60)
    job.wait_for_step(job.step() + 5)
    job.send("shard-1", signal.SIGKILL)
    job.start_shard()
    ends = job.wait_for_end([name for name in job.processes if name != "shard-1"])
    assert all(code == 0 for code in ends.values()), ends
    assert " all go back to a checkpoint " in job.coordinator_logs()
    job.check_sums()


def wait_a_moment(chance):
    """Less than a step, so that a rank is killed anywhere in it."""
    time.sleep(chance.random() * 0.03)


def without_restarts_a_lost_rank_ends_the_job(where, runs):
    job = IntegerJob(where, workers=WORKERS, shards=1, epochs=1000, liveness="2s", pause="20ms", group=WORKERS)
    runs.append(job)
    job.wait_for_step(3)
    job.send("worker-2", signal.SIGKILL)
    left = [name for name in job.processes if name != "worker-2"]
    ends = job.wait_for_end(left, 60)
    assert all(code == 1 for code in ends.values()), ends
    causes = {job.log(name).strip().splitlines()[-1] for name in left}
    assert len(causes) == 1 and "has not been heard of" in causes.pop(), causes


parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=10)
parser.add_argument("--seed", type=int, default=20261124)
parser.add_argument("--all", action="store_true")
options = parser.parse_args()
tests = [sums_are_exact(options.seed + i) for i in range(options.rounds)] + [
    a_group_computes_what_its_workers_do_alone,
    samples_that_do_not_come_out_even_make_no_difference,
    other_networks_have_the_same_bits,
    without_restarts_a_lost_rank_ends_the_job,
    a_rank_that_is_stopped_past_its_lease_comes_back,
    a_lost_shard_takes_the_group_back,
]
try:
    main(*tests, at_once=AT_ONCE)
finally:
    if took:
        took.sort()
        print(f"{len(took)} ranks killed: going on after {took[0]:.1f} to {took[-1]:.1f} s, median {took[len(took) // 2]:.1f} s")
    # A rank may die when nothing is left to do; that is not what this test is for.
    if options.rounds >= 10 and len(took) < options.rounds / 2:
        sys.exit(f"only {len(took)} recoveries in {options.rounds} rounds")
