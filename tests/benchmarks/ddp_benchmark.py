"""Two workers and two shards against PyTorch's DistributedDataParallel over Gloo, and against one worker: samples/s.

    bazel run -c opt //tests/benchmarks:ddp_benchmark -- [--turns=3] [--model=simple_cnn|resnet50]

All processes compute with one thread, on the same samples: a file that both read into memory before their clocks begin, without a test
set, so that nothing is evaluated. Both clocks run from when all have the network's initial values until the last step is done; nobody's
first steps are left out. Makes a Python environment with PyTorch of the version that the worker has (some GB
to download the first time).
"""

import argparse
import gzip
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys

sys.path[:0] = ["tests/process", "tests/benchmarks"]
import numpy as np
from pytorch_environment import environment
from safetensors.numpy import save_file
from support.data import write_cifar
from support.jobs import Run, folder


FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")


def fashion_mnist(where):
    """Pixels and labels."""
    pixels, labels = (
        np.frombuffer(gzip.decompress((FASHION_MNIST / f"train-{name}-ubyte.gz").read_bytes()), np.uint8, offset=offset)
        for name, offset in (("images-idx3", 16), ("labels-idx1", 8))
    )
    return pixels.reshape(-1, 1, 28, 28), labels


def as_cifar(where):
    """Images of CIFAR-10's shape."""
    write_cifar(where / "cifar")
    records = np.concatenate([np.fromfile(path, np.uint8) for path in sorted(where.glob("cifar/data_batch_*"))]).reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


# Model of the job file, its data, batch of each process, steps of each process of a turn.
SETTINGS = {
    "simple_cnn": ("simple_cnn {}", fashion_mnist, 100, 200),
    "resnet50": ("resnet { depth: 50 }", as_cifar, 32, 20),
}

JOB = """
name: "ddp"
seed: 1
model {{ {model} }}
data {{ safetensors {{ train: "{name}.safetensors" }} batch: {batch} }}
optimizer {{ adam {{ rate: 0.001 }} }}
cluster {{ workers: {workers} shards: 2 }}
threads: 1
steps: {steps}
checkpoint {{ at_end: false }}
"""


def write_samples(where, name):
    """The file that both read."""
    pixels, labels = SETTINGS[name][1](where)
    save_file({"x": pixels.astype(np.float32) / 255, "y": labels.astype(np.int64)}, where / f"{name}.safetensors")


def parley(where, name, workers):
    model, _, batch, steps = SETTINGS[name]
    job = where / "job.textproto"
    job.write_text(JOB.format(model=model, name=name, batch=batch, workers=workers, steps=steps))
    run = Run(job)
    try:
        assert run.wait(1200) == 0, run.stderr()
        return float(re.search(r"training .*: (\d+) samples/s", run.stdout()).group(1))
    finally:
        run.kill()


def ddp(where, name, python):
    _, _, batch, steps = SETTINGS[name]
    store = where / f"store-{random.random()}"
    loop = pathlib.Path("tests/benchmarks/ddp_loop.py").resolve()
    processes = [
        subprocess.Popen(
            [python, loop, name, where / f"{name}.safetensors", str(batch), str(steps), str(rank), "2", store], stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=1200)[0] for process in processes]
    assert all(process.returncode == 0 for process in processes)
    return float(outputs[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--model", choices=SETTINGS, action="append")
    options = parser.parse_args()
    python = environment()
    where = folder("ddp")
    try:
        print("| network, batch of each process | parley, 1 worker | parley, 2 workers | DDP, 2 processes | of DDP | of 1 worker |")
        print("|---|---|---|---|---|---|", flush=True)
        for name in options.model or SETTINGS:
            write_samples(where, name)
            rates = [(parley(where, name, 1), parley(where, name, 2), ddp(where, name, python)) for _ in range(options.turns)]
            one, two, other = (statistics.median(each) for each in zip(*rates))
            print(f"| {name}, {SETTINGS[name][2]} | {one:.0f}/s | {two:.0f}/s | {other:.0f}/s | {two / other:.2f} | {two / one:.2f} |", flush=True)
    finally:
        shutil.rmtree(where, ignore_errors=True)


main()
