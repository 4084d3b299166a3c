"""A job that was killed as a whole goes on from its last checkpoint as if nothing had happened, bit by bit.

50 steps of Fashion-MNIST with two workers, deterministic, with clipping, dropout and Adam: in one go; and killed at a random
moment, and resumed with another number of shards, which need not have been whole numbers of the first.
"""

import random
import re
import sys

sys.path.insert(0, "tests/process")
import torch
from support.bits import assert_same_bits
from support.brake import Brake
from support.jobs import Run, exported, main, wait_for

STEPS = 50
SEED = 20261122

JOB = """
name: "resume"
seed: 5
model {{ torchscript: "net.pt" }}
data {{ idx {{ directory: "/usr/share/datasets/fashion-mnist" }} batch: 50 evaluation_batch: 10000 }}
optimizer {{ adam {{ rate: 0.002 }} clip_norm: 0.5 }}
consistency {{ sync {{ deterministic: true }} }}
cluster {{ workers: 2 shards: {shards} }}
threads: 1
liveness: "10s"
steps: {steps}
checkpoint {{ every_steps: 7 {rest} }}
"""


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 8, 5, stride=2)
        self.drop = torch.nn.Dropout(0.3)
        self.norm = torch.nn.BatchNorm1d(64)
        self.fc1 = torch.nn.Linear(8 * 12 * 12, 64)
        self.fc2 = torch.nn.Linear(64, 10)

    def forward(self, x):
        x = torch.relu(self.conv(x)).flatten(1)
        return self.fc2(self.drop(self.norm(torch.relu(self.fc1(x)))))


def start(where, name, shards, rest=""):
    folder = where / name
    folder.mkdir()
    torch.manual_seed(1)
    torch.jit.script(Net()).save(str(folder / "net.pt"))
    (folder / "job.textproto").write_text(JOB.format(shards=shards, steps=STEPS, rest=rest))
    return Run(folder / "job.textproto")


def a_killed_job_goes_on_bitwise(where, runs):
    chance = random.Random(SEED)
    straight = start(where, "straight", shards=2)
    runs.append(straight)
    assert straight.wait() == 0
    expected = exported(straight.out)
    for shards in (1, 2, 3, 5):
        first = start(where, f"killed-{shards}", shards=chance.choice([1, 2, 3, 5]))
        runs.append(first)
        brake = Brake(first)
        step = chance.randint(9, STEPS - 10)
        first.wait_for_step(step)
        wait_for("a checkpoint", (first.out / "checkpoints/latest").exists, 30)
        first.kill_everything()
        brake.release()
        second = start(where, f"resumed-{shards}", shards=shards, rest=f'start_from: "{first.out}/checkpoints"')
        runs.append(second)
        assert second.wait() == 0
        log = second.logs()["shard-0"]
        version = re.search(r" loaded the checkpoint .*\bversion=(\d+)", log).group(1)
        print(f"killed after step {step}, resumed from step {version} with {shards} shards")
        assert_same_bits(exported(second.out), expected, f"{shards} shards")


main(a_killed_job_goes_on_bitwise)
