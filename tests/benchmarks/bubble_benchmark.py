"""Four stages that sleep (forward 50 ms, backward 100 ms): the bubble of each schedule as it is and as the plan predicts it,
and, with --torch, side by side with torch.distributed.pipelining over Gloo (some GB to download the first time).

    bazel run -c opt //tests/benchmarks:bubble_benchmark -- [--torch] [--microbatches=8,16] [--steps=5] [--schedules=GPIPE,...]

Sleeping stages measure schedules and messages on any machine, also one with fewer cores than stages. The bubble is
1 - sum(busy) / (stages * time of a step), the median of the steps; what it may be above the prediction is 0.02. Where steps overlap
it is that of the steps in the middle, where there should be none; the prediction is of the whole stretch, with the pipeline's filling
and emptying. PIPEDREAM's step is one microbatch. "driver" is the worker's own time for each microbatch: taking it from the data, and
sending its samples and targets to the stages, the median of the steps; without the first one, in which it connects with them.
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

sys.path[:0] = ["tests/process", "tests/benchmarks"]
import numpy as np
from pytorch_environment import environment
from safetensors.numpy import save_file
from support.jobs import Run, folder, scrape, wait_for
from support.programs import program

STAGES = 4
FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = 0.05, 0.05, 0.05
# Of ours: the parts of each stage, and the name of torch.distributed.pipelining's.
SCHEDULES = {
    "GPIPE": (1, "GPipe"),
    "ONE_F_ONE_B": (1, "1F1B"),
    "EAGER": (1, None),
    "INTERLEAVED": (2, "Interleaved1F1B"),
    "ZERO_BUBBLE": (1, None),
    "CHIMERA": (2, None),
    "TWO_BUFFER_WEIGHTS": (1, None),
    "PIPEDREAM": (1, None),
}
OVERLAPPING = ("TWO_BUFFER_WEIGHTS", "PIPEDREAM")
ALLOWED = 0.02

JOB = """
name: "bubble"
seed: 1
model {{ sleeping {{ layers: {layers} forward_seconds: {forward} input_gradient_seconds: {input} weight_gradient_seconds: {weight} }} }}
data {{ safetensors {{ train: "{data}" }} batch: 1 shuffle: false }}
optimizer {{ sgd {{ rate: 0.001 }} }}
cluster {{ workers: 1 shards: 1 stages: {stages} }}
pipeline {{ schedule: {schedule} {parts} {cuts} }}
accumulate: {microbatches}
threads: 1
steps: {steps}
checkpoint {{ at_end: false }}
"""


def write_job(where, schedule, microbatches, steps):
    parts, _ = SCHEDULES[schedule]
    # Two parts of a stage are halves of what one part is; Chimera's are of two pipelines, whole each.
    layers, share = (STAGES * parts, parts) if schedule == "INTERLEAVED" else (STAGES, 1)
    data = where / "data.safetensors"
    rng = np.random.default_rng(1)
    # Steps overlap until the end of a data epoch.
    samples = 4096 if schedule in OVERLAPPING else 64
    save_file({"x": rng.random((samples, 4), dtype=np.float32), "y": np.arange(samples, dtype=np.int64) % 4}, data)
    job = where / "job.textproto"
    job.write_text(
        JOB.format(
            layers=layers, forward=FORWARD / share, input=INPUT_GRADIENT / share, weight=WEIGHT_GRADIENT / share, data=data, stages=STAGES,
            schedule=schedule, parts=f"parts_per_stage: {parts}" if schedule == "INTERLEAVED" else "",
            cuts=" ".join(f'cut_before: "sleeping.{i}"' for i in range(1, layers)), microbatches=microbatches, steps=steps))  # fmt: skip
    return job


def steps_and_microbatches(schedule, steps, microbatches):
    """Of the job; a step of PIPEDREAM is one microbatch."""
    return (steps * microbatches, 1) if schedule == "PIPEDREAM" else (steps, microbatches)


def predicted(job):
    done = subprocess.run([program("parley"), "plan", str(job)], capture_output=True, text=True, check=True)
    return float(re.search(r"predicted bubble +([0-9.]+)", done.stdout).group(1))


def measured(job, microbatches, steps):
    """The bubble of each step but the first one, and the worker's seconds for each microbatch."""
    run = Run(job)
    try:
        def serving():
            assert run.process.poll() is None, run.stderr()
            return re.search(r" serving .*\bmetrics=(\S+)", run.logs().get("worker-0", ""))

        address = wait_for("the worker", serving, 60).group(1)
        bubbles, driver, before = {}, [], None
        while run.process.poll() is None and len(bubbles) < steps - 1:
            try:
                text = scrape(address)
            except OSError:
                break
            bubble = re.search(r"^parley_pipeline_bubble_ratio\{.*\} (\S+)$", text, re.M)
            if bubble and float(bubble.group(1)) > 0:
                bubbles[bubble.group(1)] = float(bubble.group(1))
                phases = re.findall(r'^parley_step_phase_duration_seconds_(sum|count)\{phase="(?:data|push)".*\} (\S+)$', text, re.M)
                total = {of: sum(float(value) for name, value in phases if name == of) for of in ("sum", "count")}
                # Half of the counts: each step has one of data and one of push.
                if before is not None and total["count"] > before["count"]:
                    steps_since = (total["count"] - before["count"]) / 2
                    driver.append((total["sum"] - before["sum"]) / steps_since / microbatches)
                before = total
            time.sleep(0.1)
        run.process.wait(timeout=120)
        return list(bubbles.values()), statistics.median(driver)
    finally:
        run.kill()


def torch_bubble(python, where, name, parts, microbatches, steps):
    """The same with torch.distributed.pipelining."""
    store = where / f"store-{name}-{microbatches}"
    loop = pathlib.Path("tests/benchmarks/bubble_loop.py").resolve()
    backward = (INPUT_GRADIENT + WEIGHT_GRADIENT) / parts
    processes = [
        subprocess.Popen(
            [python, str(loop), name, str(STAGES), str(parts), str(microbatches), str(FORWARD / parts), str(backward), str(steps), str(rank), store],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
        for rank in range(STAGES)
    ]
    outputs = [process.communicate(timeout=600) for process in processes]
    assert all(process.returncode == 0 for process in processes), "\n".join(error[-2000:] for _, error in outputs)
    return float(outputs[0][0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--microbatches", default="8,16")
    parser.add_argument("--schedules", default=",".join(SCHEDULES))
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--torch", action="store_true")
    arguments = parser.parse_args()
    python = environment() if arguments.torch else None
    print(f"{'schedule':<12} {'microbatches':>12} {'predicted':>10} {'measured':>10} {'above it':>9} {'torch':>8} {'step s':>8} {'driver us':>10}")
    steps_of = {}
    wrong = []
    for microbatches in [int(n) for n in arguments.microbatches.split(",")]:
        for schedule in arguments.schedules.split(","):
            where = folder("bubble")
            steps, of_a_step = steps_and_microbatches(schedule, arguments.steps, microbatches)
            job = write_job(where, schedule, of_a_step, steps)
            plan = predicted(job)
            bubbles, driver = measured(job, of_a_step, steps)
            edge = 2 * STAGES if schedule == "PIPEDREAM" else 1
            bubble = statistics.median(bubbles[edge : -edge if schedule in OVERLAPPING else None])
            parts, torch_name = SCHEDULES[schedule]
            torch = torch_bubble(python, where, torch_name, parts, microbatches, arguments.steps) if python and torch_name else None
            busy = microbatches * (FORWARD + INPUT_GRADIENT + WEIGHT_GRADIENT)
            steps_of[schedule, microbatches] = busy / (1 - bubble)
            print(
                f"{schedule:<12} {microbatches:>12} {plan:>10.3f} {bubble:>10.3f} {bubble - plan:>9.3f} "
                f"{'' if torch is None else f'{torch:.3f}':>8} {steps_of[schedule, microbatches]:>8.3f} {1e6 * driver:>10.0f}",
                flush=True,
            )
            expected = 0 if schedule in OVERLAPPING else plan
            if abs(bubble - expected) > ALLOWED or (torch is not None and bubble > torch + 0.005):
                wrong.append(f"{schedule} with {microbatches} microbatches")
    for microbatches in sorted({n for _, n in steps_of}):
        if ("ONE_F_ONE_B", microbatches) in steps_of and ("ZERO_BUBBLE", microbatches) in steps_of:
            ratio = steps_of["ONE_F_ONE_B", microbatches] / steps_of["ZERO_BUBBLE", microbatches]
            formula = (3 * microbatches + 9) / (3 * microbatches + 3)  # docs/schedules.md, in thirds of a microbatch
            print(f"1F1B over ZB-H1, {microbatches} microbatches: {ratio:.3f}, by the formulas {formula:.3f}")
    if wrong:
        sys.exit(f"not as it should be: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
