"""What each consistency mode reaches on Fashion-MNIST with four workers, one of them five times slower: accuracy over time.

    bazel run -c opt //tests/benchmarks:mode_accuracy -- [--epochs=5] [--plot=FILE.svg]

The slow worker is stopped and continued by signals, so that it computes a fifth of the time; nothing in the product knows of
it. Prints a table in Markdown; the plot needs Debian's python3-matplotlib. Takes a minute or two for each mode.
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import sys
import threading
import time

sys.path.insert(0, "tests/process")
from support.jobs import Run, folder, scrape

JOB = """
name: "modes"
seed: 1
model { simple_cnn {} }
data { idx { directory: "/usr/share/datasets/fashion-mnist" } batch: 100 }
optimizer { adam { rate: 0.001 } }
cluster { workers: 4 shards: 2 }
threads: 1
"""
MODES = [
    ("sync", "sync {}"),
    ("sync, 1 backup", "sync { backup: 1 }"),
    ("bounded, bound 4", "bounded { bound: 4 }"),
    ("async", "async {}"),
    ("async, rate / staleness", "async { divide_rate_by_staleness: true }"),
    ("async, DC-ASGD 0.04", "async { delay_compensation: 0.04 }"),
]
WORK, REST = 0.02, 0.08  # seconds of the slow one


class Slow(threading.Thread):
    """Lets a process run a fifth of the time until it is gone."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.over = pid, threading.Event()

    def run(self):
        try:
            while not self.over.is_set():
                os.kill(self.pid, signal.SIGSTOP)
                time.sleep(REST)
                os.kill(self.pid, signal.SIGCONT)
                time.sleep(WORK)
        except ProcessLookupError:
            pass

    def end(self):
        self.over.set()
        self.join()


def mean_staleness(run):
    total = count = 0.0
    for name, log in run.logs().items():
        metrics = re.search(r" metrics=(\S+)", log)
        if not name.startswith("shard") or not metrics:
            continue
        text = scrape(metrics.group(1))
        total += sum(float(n) for n in re.findall(r"^parley_staleness_steps_sum\S* (\S+)", text, re.M))
        count += sum(float(n) for n in re.findall(r"^parley_staleness_steps_count\S* (\S+)", text, re.M))
    return total / count if count else 0.0


def measure(mode, epochs):
    """[(seconds of training, accuracy)] of the epochs, samples/s, mean staleness."""
    where = folder("modes")
    job = where / "job.textproto"
    job.write_text(JOB + f"consistency {{ {mode} }}\nepochs: {epochs}\n")
    run = Run(job)
    slow = None
    points, staleness, rate = [], 0.0, 0.0
    try:
        while run.process.poll() is None:
            status = run.status()
            if status and status.get("phase") == "TRAINING":
                if slow is None:
                    slow = Slow(run.pids()["worker-0"])
                    slow.start()
                seconds = float(status.get("seconds_training", 0))
                rate = int(status.get("samples", 0)) / seconds if seconds else 0
                for evaluation in status.get("evaluations", [])[len(points):]:
                    points.append((seconds, int(evaluation["correct"]) / int(evaluation["samples"])))
                if len(points) < epochs:
                    staleness = mean_staleness(run)
            time.sleep(0.3)
        if slow:
            slow.end()
        # The last evaluation is in the table at the end, with the seconds.
        accuracies = [float(text) for text in re.findall(r"accuracy (\d\.\d+)", run.stdout().split("job modes", 1)[-1])]
        seconds = float(re.search(r"samples in ([\d.]+) s", run.stdout()).group(1))
        points += [(seconds, accuracy) for accuracy in accuracies[len(points):]]
        if run.process.returncode != 0 or len(points) != epochs:
            run.show()
            sys.exit(f"{mode}: exit status {run.process.returncode}, {len(points)} of {epochs} evaluations")
        return points, rate, staleness
    finally:
        if slow:
            slow.end()
        run.kill()
        shutil.rmtree(where, ignore_errors=True)


def plot(results, path):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "parley"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    for name, (points, _, _) in results.items():
        axes.plot([seconds for seconds, _ in points], [accuracy for _, accuracy in points], marker="o", label=name)
    axes.set_xlabel("seconds of training")
    axes.set_ylabel("test accuracy")
    axes.set_title("Fashion-MNIST, 4 workers on 2 cores, one 5 times slower: each data epoch")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--plot", help="an SVG file, relative to the workspace")
    arguments = parser.parse_args()
    results = {}
    print(f"| mode | accuracy after {arguments.epochs} epochs | seconds of training | samples/s | mean staleness |")
    print("|---|---|---|---|---|", flush=True)
    for name, mode in MODES:
        results[name] = points, rate, staleness = measure(mode, arguments.epochs)
        print(f"| {name} | {points[-1][1]:.4f} | {points[-1][0]:.1f} | {rate:,.0f} | {staleness:.1f} |", flush=True)
    if arguments.plot:
        plot(results, pathlib.Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", ".")) / arguments.plot)


main()
