"""Memory of shards and workers that train a large model, against what `parley plan` says.

    bazel run -c opt //tests/benchmarks:memory_benchmark -- [--mib=1024] [--case=NAME]...

Counts what is a process's own: private memory, and shared memory that it may write (a peer that maps it reads only). What a
process has with a model of next to nothing, measured in the same run, is taken off: the plan says what tensors need. The most
of what is seen every 20 ms, from the start on.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, "tests/process")
import torch
from safetensors.torch import save_file
from support.jobs import Run, folder
from support.programs import program

LAYERS = 16
STEPS = 12

JOB = """
name: "memory"
seed: 1
model {{ torchscript: "model{width}.pt" }}
data {{ safetensors {{ train: "data{width}.safetensors" {test} }} batch: 1 }}
optimizer {{ {optimizer} }}
cluster {{ workers: {workers} shards: {shards} }}
threads: 1
{extra}
"""

# Optimizer, workers, shards, whether it evaluates, further lines of the job.
CASES = {
    "sgd": ("sgd { rate: 0.001 }", 1, 1, False, "steps: 12 checkpoint { at_end: false }"),
    "adam, 2 shards": ("adam { rate: 0.001 }", 1, 2, False, "steps: 12 checkpoint { at_end: false }"),
    "2 workers": ("sgd { rate: 0.001 }", 2, 1, False, "steps: 12 checkpoint { at_end: false }"),
    "clipped": ("sgd { rate: 0.001 } clip_norm: 1", 1, 1, False, "steps: 12 checkpoint { at_end: false }"),
    "evaluated": ("sgd { rate: 0.001 }", 1, 1, True, "epochs: 2 checkpoint { at_end: false }"),
    "checkpoints": ("sgd { rate: 0.001 momentum: 0.9 }", 1, 1, False, "steps: 12 checkpoint { every_steps: 5 at_end: false }"),
    "bounded": ("sgd { rate: 0.001 }", 2, 1, False, "steps: 12 consistency { bounded { bound: 1 } } checkpoint { at_end: false }"),
}


def write_model(where, width):
    layers = [torch.nn.Linear(width, width) for _ in range(LAYERS)]
    with torch.no_grad():
        for layer in layers:
            layer.weight.mul_(0.1)
    torch.jit.script(torch.nn.Sequential(*layers)).save(str(where / f"model{width}.pt"))
    chance = torch.Generator().manual_seed(1)
    save_file(
        {"x": torch.randn(2 * STEPS, width, generator=chance), "y": torch.randint(0, width, (2 * STEPS,), generator=chance)},
        where / f"data{width}.safetensors",
    )


def own_bytes(pid):
    """Of one process, or None when it has gone."""
    own = 0
    shared = ""
    try:
        with open(f"/proc/{pid}/smaps") as maps:
            for line in maps:
                word, _, rest = line.partition(" ")
                if not word.endswith(":"):
                    permissions = rest.split()[0]
                    shared = permissions if permissions[3] == "s" else ""
                elif word == "Anonymous:" and not shared:
                    own += int(rest.split()[0]) * 1024
                elif word == "Rss:" and shared[1:2] == "w":
                    own += int(rest.split()[0]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        return None
    return own


def run(job):
    """The most that each role had, in bytes."""
    most = {}
    run = Run(job)
    try:
        ended = threading.Event()

        def look():
            pids = {}
            while not ended.is_set():
                if len(pids) < 3:
                    pids = {name: pid for name, pid in run.pids().items() if name != "coordinator"}
                for name, pid in pids.items():
                    most[name] = max(most.get(name, 0), own_bytes(pid) or 0)
                time.sleep(0.02)

        looking = threading.Thread(target=look)
        looking.start()
        code = run.wait(1200)
        ended.set()
        looking.join()
        assert code == 0, run.stderr()
        return most
    finally:
        run.kill()


def planned(job):
    """Role to bytes."""
    text = subprocess.run([program("parley"), "plan", str(job)], capture_output=True, text=True, check=True).stdout
    text = text[text.index("memory for tensors") :]
    units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    found = {}
    for name, value, unit in re.findall(r"^  (shard \d+|each worker) +([\d.]+) (B|KiB|MiB|GiB)", text, re.M):
        found[name.replace(" ", "-")] = float(value) * units[unit]
    starting = re.search(r"([\d.]+) (\w+): while it starts", text)
    if starting:
        found["each-worker"] = float(starting.group(1)) * units[starting.group(2)]
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--case", choices=CASES, action="append")
    options = parser.parse_args()
    width = int((options.mib * 2**20 / 4 / LAYERS) ** 0.5)
    where = folder("memory")
    try:
        for each in (8, width):
            write_model(where, each)
        print(f"{LAYERS} linear layers of {width} x {width}: {LAYERS * (width + 1) * width * 4 / 2**20:.0f} MiB")
        print("| job | process | without a model | plan | measured beside that | of plan |")
        print("|---|---|---|---|---|---|", flush=True)
        for name in options.case or CASES:
            optimizer, workers, shards, evaluated, extra = CASES[name]
            most = {}
            for each in (8, width):
                job = where / "job.textproto"
                test = f'test: "data{each}.safetensors"' if evaluated else ""
                job.write_text(JOB.format(width=each, test=test, optimizer=optimizer, workers=workers, shards=shards, extra=extra))
                most[each] = run(job)
            plan = planned(job)
            for role, bytes_ in sorted(most[width].items()):
                needs = plan["each-worker" if role.startswith("worker") else role]
                empty = most[8].get(role, 0)
                has = bytes_ - empty
                sizes = " | ".join(f"{size / 2**20:.0f} MiB" for size in (empty, needs, has))
                print(f"| {name} | {role} | {sizes} | {has / needs:.3f} |", flush=True)
    finally:
        shutil.rmtree(where, ignore_errors=True)


main()
