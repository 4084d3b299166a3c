"""Two workers and two shards against PyTorch's DistributedDataParallel over Gloo, and against one worker: samples/s.

    bazel run -c opt //tests/benchmarks:ddp_benchmark -- [--turns=3] [--model=simple_cnn|resnet50]

All processes compute with one thread. Makes a Python environment with PyTorch of the version that the worker has (some GB
to download the first time).
"""

import argparse
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys

sys.path[:0] = ["tests/process", "tests/benchmarks"]
from pytorch_environment import environment
from support.data import write_cifar
from support.jobs import Run, folder

# Model of the job file, its data, batch of each process, steps of each process of a turn.
SETTINGS = {
    "simple_cnn": ("simple_cnn {}", 'idx { directory: "/usr/share/datasets/fashion-mnist" }', 100, 200),
    "resnet50": ("resnet { depth: 50 }", 'cifar10 { directory: "cifar" }', 32, 20),
}

JOB = """
name: "ddp"
seed: 1
model {{ {model} }}
data {{ {data} batch: {batch} }}
optimizer {{ adam {{ rate: 0.001 }} }}
cluster {{ workers: {workers} shards: 2 }}
threads: 1
steps: {steps}
checkpoint {{ at_end: false }}
"""


def parley(where, name, workers):
    model, data, batch, steps = SETTINGS[name]
    job = where / "job.textproto"
    job.write_text(JOB.format(model=model, data=data, batch=batch, workers=workers, steps=steps))
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
        subprocess.Popen([python, loop, name, str(batch), str(steps), str(rank), "2", store], stdout=subprocess.PIPE, text=True)
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
        write_cifar(where / "cifar")
        print("| network, batch of each process | parley, 1 worker | parley, 2 workers | DDP, 2 processes | of DDP | of 1 worker |")
        print("|---|---|---|---|---|---|", flush=True)
        for name in options.model or SETTINGS:
            rates = [(parley(where, name, 1), parley(where, name, 2), ddp(where, name, python)) for _ in range(options.turns)]
            one, two, other = (statistics.median(each) for each in zip(*rates))
            print(f"| {name}, {SETTINGS[name][2]} | {one:.0f}/s | {two:.0f}/s | {other:.0f}/s | {two / other:.2f} | {two / one:.2f} |", flush=True)
    finally:
        shutil.rmtree(where, ignore_errors=True)


main()
