"""Two workers and two shards against PyTorch's DistributedDataParallel, against Horovod, against a parameter server of PyTorch's RPC,
and against one worker: samples/s.

    bazel run -c opt //tests/benchmarks:data_parallel_benchmark -- [--turns=3] [--model=simple_cnn|resnet50] [--against=DDP,HOROVOD,RPC]

All workers compute with one thread, on the same samples: a file that all read into memory before their clocks begin, without a test
set, so that nothing is evaluated. The clocks run from when all have the network's initial values until the last step is done; nobody's
first steps are left out. DDP and Horovod go over Gloo. The parameter server of RPC is the one of PyTorch's tutorial, whose workers wait
for each other's gradients (data_parallel_loop.py); it has as many threads as the machine has cores. Makes a Python environment with
PyTorch of the version that the worker has (some GB to download the first time), and builds Horovod in it (some minutes).
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
from pytorch_environment import add_horovod, environment
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
name: "data-parallel"
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
    """The file that all read."""
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


def pytorch(where, name, python, way):
    """Two workers, and with RPC the server behind them."""
    _, _, batch, steps = SETTINGS[name]
    loop = pathlib.Path("tests/benchmarks/data_parallel_loop.py").resolve()
    store = where / f"store-{random.random()}"

    def command(rank):
        return [python, loop, way, name, where / f"{name}.safetensors", str(batch), str(steps), str(rank), "2", store]

    if way == "HOROVOD":  # starts as many itself
        commands = [[python.parent / "horovodrun", "--gloo", "-np", "2", "-H", "localhost:2", *command(0)]]
    else:
        commands = [command(rank) for rank in range({"DDP": 2, "RPC": 3}[way])]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for command in commands]
    outputs = [process.communicate(timeout=1200) for process in processes]
    assert all(process.returncode == 0 for process in processes), "\n".join(error[-2000:] for _, error in outputs)
    return float(re.search(r"([\d.]+)\s*$", "".join(output for output, _ in outputs)).group(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--model", choices=SETTINGS, action="append")
    parser.add_argument("--against", default="DDP,HOROVOD,RPC")
    options = parser.parse_args()
    ways = options.against.split(",")
    python = environment()
    if "HOROVOD" in ways:
        add_horovod(python)
    where = folder("data-parallel")
    try:
        print(f"| network, batch of each process | parley, 1 worker | parley, 2 workers | of 1 worker | {' | '.join(f'{way}, 2 | of {way}' for way in ways)} |")
        print(f"|---|---|---|---|{'---|---|' * len(ways)}", flush=True)
        for name in options.model or SETTINGS:
            write_samples(where, name)
            turns = [
                [parley(where, name, 1), parley(where, name, 2), *(pytorch(where, name, python, way) for way in ways)]
                for _ in range(options.turns)
            ]
            one, two, *others = (statistics.median(each) for each in zip(*turns))
            cells = [f"{one:.0f}/s", f"{two:.0f}/s", f"{two / one:.2f}", *(cell for other in others for cell in (f"{other:.0f}/s", f"{two / other:.2f}"))]
            print(f"| {name}, {SETTINGS[name][2]} | {' | '.join(cells)} |", flush=True)
    finally:
        shutil.rmtree(where, ignore_errors=True)


main()
