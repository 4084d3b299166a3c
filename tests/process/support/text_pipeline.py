"""A small transformer with dropout on a made text, deterministic, with Adam and clipping: with stages, or without."""

import random

from support.jobs import Run

STEPS = 8
SEED = 20261123

JOB = """
name: "pipeline"
seed: 5
model {{ transformer {{ width: 32 heads: 2 hidden: 48 layers: {layers} dropout: 0.2 {model} }} }}
data {{ text {{ train: "book.txt" test_share: 0.2 length: 12 columns: 4 {text} }} batch: 3 evaluation_batch: 8 }}
optimizer {{ {optimizer} clip_norm: 0.5 }}
consistency {{ sync {{ deterministic: true }} }}
cluster {{ workers: {workers} shards: 2 {cluster} }}
accumulate: {accumulate}
threads: 1
liveness: "{liveness}"
steps: {steps}
{rest}
"""


def start(
    where,
    name,
    cluster="",
    rest="",
    layers=3,
    model="",
    text="",
    workers=1,
    accumulate=4,
    steps=STEPS,
    liveness="10s",
    optimizer="adam { rate: 0.002 }",
):
    folder = where / name
    folder.mkdir()
    chance = random.Random(SEED)
    words = ["the", "light", "of", "a", "stage", "shone", "and", "it", "was", "good"]
    (folder / "book.txt").write_text(" ".join(chance.choice(words) for _ in range(3000)))
    (folder / "job.textproto").write_text(
        JOB.format(
            cluster=cluster,
            rest=rest,
            layers=layers,
            model=model,
            text=text,
            workers=workers,
            accumulate=accumulate,
            steps=steps,
            liveness=liveness,
            optimizer=optimizer,
        )
    )
    return Run(folder / "job.textproto")


def pid_of(run, role, ordinal):
    """Of the one that has this place now."""
    for status in run.answer()["members"]:
        member = status["member"]
        if member["role"] == role and int(member.get("ordinal", 0)) == ordinal:
            return int(member["pid"])
    raise AssertionError(f"no {role} {ordinal}")
