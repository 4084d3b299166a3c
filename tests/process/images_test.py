"""A residual network learns to tell images in folders apart, on two workers."""

import random
import sys

sys.path.insert(0, "tests/process")
import numpy
from PIL import Image
from support.jobs import Run, main

CLASSES = {"blue": (40, 60, 200), "green": (50, 180, 60), "red": (210, 50, 40)}

JOB = """
name: "images"
seed: 2
model {{ resnet {{ depth: 18 classes: 3 }} }}
data {{ image_folders {{ directory: "{folder}" side: 32 least_area: 0.3 }} batch: 8 evaluation_batch: 24 }}
optimizer {{ sgd {{ rate: 0.01 }} }}
cluster {{ workers: 2 shards: 2 }}
threads: 1
epochs: 4
"""


def write(folder, each):
    chance = random.Random(7)
    for number, (name, colour) in enumerate(CLASSES.items()):
        (folder / name).mkdir(parents=True)
        for i in range(each):
            width, height = chance.randint(30, 90), chance.randint(30, 90)
            noise = numpy.frombuffer(chance.randbytes(width * height * 3), numpy.uint8).reshape(height, width, 3)
            pixels = numpy.clip(noise.astype(int) // 3 + numpy.array(colour) - 40, 0, 255).astype(numpy.uint8)
            Image.fromarray(pixels, "RGB").save(folder / name / (f"{i}.png" if i % 3 == number else f"{i}.JPEG"))


def it_learns(where, runs):
    write(where / "images/train", 48)
    write(where / "images/val", 16)
    (where / "job.textproto").write_text(JOB.format(folder="images"))
    run = Run(where / "job.textproto")
    runs.append(run)
    assert run.wait() == 0
    accuracy = float(run.stdout().split("accuracy")[-1].split()[0])
    assert accuracy > 0.9, run.stdout()
    print(run.stdout())


main(it_learns)
