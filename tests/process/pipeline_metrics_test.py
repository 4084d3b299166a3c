"""The bubble that a worker tells is that of the traces of the same run; references and activations are gone when nothing runs."""

import json
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, "tests/process")
import numpy as np
from safetensors.numpy import save_file
from support.jobs import main, scrape
from support.programs import program

STAGES, STEPS = 2, 8

JOB = """
name: "traced"
seed: 1
model {{ sleeping {{ layers: 2 forward_seconds: 0.02 input_gradient_seconds: 0.03 weight_gradient_seconds: 0.01 }} }}
data {{ safetensors {{ train: "{data}" }} batch: 2 shuffle: false }}
optimizer {{ sgd {{ rate: 0.001 }} }}
cluster {{ workers: 1 shards: 1 stages: {stages} }}
pipeline {{ cut_before: "sleeping.1" }}
accumulate: 4
threads: 1
steps: {steps}
checkpoint {{ at_end: false }}
"""


def spans(trace, *names):
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X" and event["name"] in names]
    return sorted((event["ts"], event["ts"] + event["dur"], event["name"]) for event in events)


def bubbles_of(worker, stages):
    """1 - busy / (stages * time) of each step, by the traces: a step goes from its first batch to the last loss."""
    busy = [span for stage in stages for span in spans(stage, "forward", "backward")]
    bubbles, begin = [], None
    for start, end, name in spans(worker, "data", "forward"):
        begin = start if begin is None else begin
        if name == "forward":
            inside = sum(to - since for since, to, _ in busy if begin <= since and to <= end)
            bubbles.append(1 - inside / (len(stages) * (end - begin)))
            begin = None
    return bubbles


def the_bubble_is_that_of_the_traces(where, runs):
    data, job, out = where / "data.safetensors", where / "job.textproto", where / "out"
    save_file({"x": np.ones((64, 4), dtype=np.float32), "y": np.arange(64, dtype=np.int64) % 4}, data)
    job.write_text(JOB.format(data=data, stages=STAGES, steps=STEPS))
    member = [f"--job={job}", f"--coordinator=file:{out}/coordinator.address"]
    traces = [where / f"{name}.json" for name in ("worker", *(f"stage-{i}" for i in range(STAGES)))]
    commands = [
        [program("parley-coordinator"), f"--job={job}", f"--out={out}"],
        [program("parley-shard"), *member],
        [program("parley-worker"), *member, f"--trace={traces[0]}"],
        *[[program("parley-stage"), *member, f"--trace={trace}"] for trace in traces[1:]],
    ]
    logs = [open(where / f"{i}.log", "w+") for i in range(len(commands))]
    processes = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) for command, log in zip(commands, logs)]
    told, seen, kept = [], set(), 0.0
    try:
        while processes[2].poll() is None:
            served = [re.search(r" serving .*\bmetrics=(\S+)", pathlib.Path(log.name).read_text()) for log in logs[2:]]
            try:
                texts = [scrape(match.group(1)) for match in served if match]
            except OSError:
                break  # it has ended
            seen.update(name for text in texts for name in re.findall(r"^(parley_\w+)\{", text, re.M))
            kept = max([kept, *(float(value) for text in texts for value in re.findall(r"^parley_stage_activation_bytes\{.*\} (\S+)$", text, re.M))])
            bubble = re.search(r"^parley_pipeline_bubble_ratio\{.*\} (\S+)$", texts[0], re.M) if served[0] else None
            if bubble and float(bubble.group(1)) > 0:
                told.append(float(bubble.group(1)))
            time.sleep(0.05)
        for process, log in zip(processes, logs):
            assert process.wait(300) == 0, pathlib.Path(log.name).read_text()
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert {"parley_pipeline_bubble_ratio", "parley_remote_references", "parley_stage_activation_bytes"} <= seen, seen
    # Of each of up to four microbatches of two samples of four float32 something is kept.
    assert kept >= 32, kept
    traced = bubbles_of(traces[0], traces[1:])
    assert len(traced) == STEPS and told, (traced, told)
    # Four microbatches through two stages: a fifth, and more on a machine that has other work.
    assert all(0.15 < bubble < 1 for bubble in traced), traced
    for bubble in set(told):
        nearest = min(traced, key=lambda one: abs(one - bubble))
        assert abs(nearest - bubble) < 0.02, (bubble, traced)
    print(f"told {sorted(set(told))}, traced {traced}")


if __name__ == "__main__":
    sys.exit(main(the_bubble_is_that_of_the_traces))
