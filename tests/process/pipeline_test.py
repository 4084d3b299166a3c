"""Pipelines of real stage processes compute the same, bit for bit, as one process; also where stages are killed.

A small transformer with dropout on a made text, deterministic, with Adam and clipping: without stages, and with two of them under
each schedule. Then two pipelines, of whose stages some are killed while the job trains.
"""

import os
import random
import signal
import sys

sys.path.insert(0, "tests/process")
from support.bits import assert_same_bits
from support.brake import Brake
from support.jobs import Run, exported, main, wait_for

STEPS = 8
SEED = 20261123

JOB = """
name: "pipeline"
seed: 5
model {{ transformer {{ width: 32 heads: 2 hidden: 48 layers: {layers} dropout: 0.2 {model} }} }}
data {{ text {{ train: "book.txt" test_share: 0.2 length: 12 columns: 4 {text} }} batch: 3 evaluation_batch: 8 }}
optimizer {{ adam {{ rate: 0.002 }} clip_norm: 0.5 }}
consistency {{ sync {{ deterministic: true }} }}
cluster {{ workers: {workers} shards: 2 {cluster} }}
accumulate: 4
threads: 1
liveness: "{liveness}"
steps: {steps}
{rest}
"""


def start(where, name, cluster="", rest="", layers=3, model="", text="", workers=1, steps=STEPS, liveness="10s"):
    folder = where / name
    folder.mkdir()
    chance = random.Random(SEED)
    words = ["the", "light", "of", "a", "stage", "shone", "and", "it", "was", "good"]
    (folder / "book.txt").write_text(" ".join(chance.choice(words) for _ in range(3000)))
    (folder / "job.textproto").write_text(
        JOB.format(cluster=cluster, rest=rest, layers=layers, model=model, text=text, workers=workers, steps=steps, liveness=liveness)
    )
    return Run(folder / "job.textproto")


def stage_pid(run, ordinal):
    """Of the one that has this place now."""
    for status in run.status()["members"]:
        member = status["member"]
        if member["role"] == "STAGE" and int(member.get("ordinal", 0)) == ordinal:
            return int(member["pid"])
    raise AssertionError(f"no stage {ordinal}")


def every_schedule_computes_what_one_process_does(where, runs):
    alone = start(where, "alone")
    runs.append(alone)
    assert alone.wait() == 0
    expected = exported(alone.out)
    for schedule in ("GPIPE", "ONE_F_ONE_B", "EAGER", "INTERLEAVED", "ZERO_BUBBLE"):
        run = start(where, schedule, "stages: 2", f"pipeline {{ schedule: {schedule} }}")
        runs.append(run)
        assert run.wait() == 0, schedule
        assert_same_bits(exported(run.out), expected, schedule)
        print(f"{schedule}: the same bits")
    cut = start(where, "recomputed", "stages: 3", 'pipeline { recompute: true cut_before: "transformer_encoder.layers.1" cut_before: "decoder" }')
    runs.append(cut)
    assert cut.wait() == 0
    assert_same_bits(exported(cut.out), expected, "three stages that compute forwards again")


def stages_that_are_killed_change_nothing(where, runs):
    chance = random.Random(SEED)
    steps = 30
    straight = start(where, "straight", "stages: 2", workers=2, steps=steps)
    runs.append(straight)
    assert straight.wait() == 0
    expected = exported(straight.out)
    run = start(where, "killed", "stages: 2", "max_restarts: 8", workers=2, steps=steps, liveness="2s")
    runs.append(run)
    for step in (4, 12, 20):
        brake = Brake(run)
        run.wait_for_step(step)
        ordinal = chance.randrange(4)
        os.kill(stage_pid(run, ordinal), signal.SIGKILL)
        brake.release()
        print(f"killed stage {ordinal} after step {step}")
        run.wait_for_step(step + 2)
    assert run.wait() == 0
    assert_same_bits(exported(run.out), expected, "after stages were killed")


if __name__ == "__main__":
    main(every_schedule_computes_what_one_process_does, stages_that_are_killed_change_nothing)
