"""A job of which one worker takes down what it does."""

import json
import pathlib
import subprocess

from support.programs import program


def traced(where, job, workers, shards, stages=0):
    """The trace of the last worker, or stage, of a job that this runs."""
    out, trace = where / "out", where / "trace.json"
    member = [f"--job={job}", f"--coordinator=file:{out}/coordinator.address"]
    commands = [
        [program("parley-coordinator"), f"--job={job}", f"--out={out}"],
        *[[program("parley-shard"), *member]] * shards,
        *[[program("parley-worker"), *member]] * workers,
        *[[program("parley-stage"), *member]] * stages,
    ]
    commands[-1] = [*commands[-1], f"--trace={trace}"]
    logs = [open(where / f"{i}.log", "w+") for i in range(len(commands))]
    processes = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) for command, log in zip(commands, logs)]
    try:
        for process, log in zip(processes, logs):
            assert process.wait(120) == 0, pathlib.Path(log.name).read_text()
    finally:
        for process in processes:
            process.kill()
            process.wait()

    return json.loads(trace.read_text())["traceEvents"]
