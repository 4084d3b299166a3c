"""parley-worker --trace: what a worker did and when, as Chrome's trace events."""

import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from support.jobs import main, small_job
from support.programs import program


def a_worker_writes_what_it_did(where, runs):
    job, out, trace = small_job(where), where / "out", where / "trace.json"
    member = [f"--job={job}", f"--coordinator=file:{out}/coordinator.address"]
    commands = [
        [program("parley-coordinator"), f"--job={job}", f"--out={out}"],
        *[[program("parley-shard"), *member]] * 2,
        [program("parley-worker"), *member],
        [program("parley-worker"), *member, f"--trace={trace}"],
    ]
    logs = [open(where / f"{i}.log", "w+") for i in range(len(commands))]
    processes = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) for command, log in zip(commands, logs)]
    try:
        for process, log in zip(processes, logs):
            assert process.wait(120) == 0, pathlib.Path(log.name).read_text()
    finally:
        for process in processes:
            process.kill()
            process.wait()

    events = json.loads(trace.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    names = {span["name"] for span in spans}
    assert {"data", "forward", "backward", "evaluate"} <= names, names
    begun = {event["id"]: event for event in events if event["ph"] == "b"}
    ended = {event["id"]: event for event in events if event["ph"] == "e"}
    assert begun.keys() == ended.keys() and begun
    assert all(begun[call]["ts"] <= ended[call]["ts"] for call in begun)
    assert {event["cat"] for event in begun.values()} >= {"shard 0", "shard 1"}
    # The phases do not overlap with each other, and each step's gradients go to both shards.
    phases = sorted((span["ts"], span["ts"] + span["dur"]) for span in spans if span["name"] in ("data", "forward", "backward"))
    assert all(one[1] <= next_one[0] for one, next_one in zip(phases, phases[1:]))
    steps = sum(span["name"] == "backward" for span in spans)
    pushes = [event for event in begun.values() if event["name"].startswith("pushing")]
    assert steps > 0 and len(pushes) >= 2 * steps, (steps, len(pushes))


if __name__ == "__main__":
    sys.exit(main(a_worker_writes_what_it_did))
