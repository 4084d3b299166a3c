"""Pipelines whose steps overlap (PIPEDREAM, TWO_BUFFER_WEIGHTS) compute, bit for bit, what a plain loop in one process computes whose
gradients are of weights as old as the schedule says; over the end of data epochs, with evaluations, dropout, an uneven last
microbatch and batch normalisation. One whose processes are killed while it trains ends, and learns.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys

sys.path.insert(0, "tests/process")
import safetensors
from support import data
from support.jobs import WHOLE, Run, exported, main

ORACLE = "tests/parity/delayed_loop"

TEXT = """
name: "overlapping"
seed: 5
model {{ transformer {{ width: 32 heads: 2 hidden: 48 layers: 3 dropout: 0.2 }} }}
data {{ text {{ train: "book.txt" test_share: 0.2 length: 12 columns: 4 }} batch: 3 evaluation_batch: 8 }}
optimizer {{ sgd {{ rate: 0.02 momentum: 0.5 }} }}
consistency {{ sync {{ deterministic: true }} }}
cluster {{ workers: {workers} shards: 2 stages: {stages} }}
accumulate: {accumulate}
threads: 1
liveness: "{liveness}"
steps: {steps}
pipeline {{ schedule: {schedule} {pipeline} }}
max_restarts: 10
"""

IMAGES = """
name: "overlapping"
seed: 3
model {{ resnet {{ depth: 18 }} }}
data {{ idx {{ directory: "{data}" }} batch: 7 }}
optimizer {{ sgd {{ rate: 0.01 momentum: 0.9 }} }}
consistency {{ sync {{ deterministic: true }} }}
cluster {{ workers: 1 shards: 2 stages: 2 }}
accumulate: {accumulate}
threads: 1
steps: {steps}
pipeline {{ schedule: {schedule} }}
"""


def text_job(where, name, schedule, stages, accumulate, steps, words, workers=1, pipeline="", liveness="10s"):
    folder = where / name
    folder.mkdir()
    chance = random.Random(7)
    known = ["the", "light", "of", "a", "stage", "shone", "and", "it", "was", "good"]
    (folder / "book.txt").write_text(" ".join(chance.choice(known) for _ in range(words)))
    (folder / "job.textproto").write_text(
        TEXT.format(
            schedule=schedule, stages=stages, accumulate=accumulate, steps=steps, workers=workers, pipeline=pipeline, liveness=liveness
        )
    )
    return folder / "job.textproto"


def tensors_of(exported_bytes):
    """The bytes of each tensor of a safetensors file, in hexadecimal, by name."""
    return {name: bytes(entry["data"]).hex() for name, entry in safetensors.deserialize(exported_bytes)}


def perplexities(run):
    """Of each data epoch."""
    return [float(number) for number in re.findall(r"perplexity (\S+)", run.stdout())]


def assert_as_delayed(runs, job, delay, what):
    run = Run(job)
    runs.append(run)
    assert run.wait() == 0, what
    got = tensors_of(exported(run.out)[0])
    expected = json.loads(subprocess.run([ORACLE, str(job), str(delay)], capture_output=True, text=True, check=True).stdout)
    other = json.loads(subprocess.run([ORACLE, str(job), str(delay + 1)], capture_output=True, text=True, check=True).stdout)
    assert other != expected, "a test that could not fail"
    wrong = [name for name in expected if got.get(name) != expected[name]]
    assert not wrong and got.keys() == expected.keys(), f"{what}: other bits of {wrong}"
    print(f"{what}: the bits of a loop whose weights are {delay} steps old", flush=True)
    return run


def weights_are_as_old_as_the_schedule_says(where, runs):
    # The epoch ends within the steps: an evaluation, and the pipeline at rest, in between.
    cases = [("PIPEDREAM", 4, 1, 4, 60), ("TWO_BUFFER_WEIGHTS", 2, 3, 1, 24)]
    if WHOLE:
        cases += [("PIPEDREAM", 2, 1, 2, 60), ("TWO_BUFFER_WEIGHTS", 4, 4, 1, 20)]
    for schedule, stages, accumulate, delay, steps in cases:
        name = f"{schedule}-{stages}"
        job = text_job(where, name, schedule, stages, accumulate, steps, words=600)
        run = assert_as_delayed(runs, job, delay, name)
        assert len(perplexities(run)) > 1, run.stdout()
    job = text_job(where, "recomputed", "TWO_BUFFER_WEIGHTS", 3, 3, 12, words=600, pipeline="recompute: true")
    assert_as_delayed(runs, job, 1, "forwards computed again")


def batch_normalisation_goes_along(where, runs):
    """Running statistics are none of the delayed weights: at a rest they are those of all microbatches, in order."""
    cases = [("TWO_BUFFER_WEIGHTS", 2, 1)]
    if WHOLE:
        cases.append(("PIPEDREAM", 1, 2))
    for schedule, accumulate, delay in cases:
        folder = where / f"images-{schedule}"
        folder.mkdir()
        data.write_idx(folder / "data")
        job = folder / "job.textproto"
        job.write_text(IMAGES.format(data=folder / "data", schedule=schedule, accumulate=accumulate, steps=5 if WHOLE else 4))
        assert_as_delayed(runs, job, delay, f"{schedule}, a residual network")


def pid_of(run, role, ordinal):
    for status in run.answer()["members"]:
        member = status["member"]
        if member["role"] == role and int(member.get("ordinal", 0)) == ordinal:
            return int(member["pid"])
    raise AssertionError(f"no {role} {ordinal}")


def processes_that_are_killed_are_replaced(where, runs):
    """Two pipelines; what was under way is fed again, with the weights that there are: not the same bits, and no step is lost."""
    steps = 200
    cases = [("PIPEDREAM", 1)]
    if WHOLE:
        cases.append(("TWO_BUFFER_WEIGHTS", 3))
    for schedule, accumulate in cases:
        job = text_job(where, f"killed-{schedule}", schedule, 2, accumulate, steps, words=4000, workers=2, liveness="2s")
        run = Run(job)
        runs.append(run)
        for at, role, ordinal in ((20, "STAGE", 1), (60, "STAGE", 2), (100, "WORKER", 0)):
            run.wait_for_step(at)
            os.kill(pid_of(run, role, ordinal), signal.SIGKILL)
        assert run.wait(300) == 0, schedule
        found = perplexities(run)
        print(f"{schedule}: perplexity {found}", flush=True)
        assert found[-1] < found[0], run.stdout()


if __name__ == "__main__":
    main(weights_are_as_old_as_the_schedule_says, batch_normalisation_goes_along, processes_that_are_killed_are_replaced)
