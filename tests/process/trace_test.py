"""parley-worker --trace: what a worker did and when, as Chrome's trace events."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import torch
from safetensors.torch import save_file
from support.jobs import main, small_job
from support.traced import traced


def a_worker_writes_what_it_did(where, runs):
    events = traced(where, small_job(where), workers=2, shards=2)
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


# What comes before what here does not depend on how long anything takes, nor on the transport:
# - Where backward has filled 4 MiB (PushWindow) they leave at once, before backward goes on.
# - A worker has at most 16 calls of at most 4 MiB open to a shard (ParameterPuller), and makes the next one when its training thread takes
#   an answer. It takes those to the calls made ahead of the verdict before forward begins, and all others where forward waits for a layer's
#   values. So what is beyond 128 MiB is asked for while forward runs.
LAYERS, WIDTH, STEPS = 36, 1024, 4
LARGE = """
name: "large"
seed: 1
model {{ torchscript: "model.pt" }}
data {{ safetensors {{ train: "data.safetensors" }} batch: 2 }}
optimizer {{ sgd {{ rate: 0.001 }} }}
cluster {{ workers: 1 shards: 1 }}
threads: 1
steps: {steps}
checkpoint {{ at_end: false }}
"""


def a_large_model_travels_while_it_is_computed(where, runs):
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    torch.jit.script(torch.nn.Sequential(*layers)).save(str(where / "model.pt"))
    samples = 2 * STEPS
    save_file({"x": torch.randn(samples, WIDTH), "y": torch.zeros(samples, dtype=torch.int64)}, where / "data.safetensors")
    job = where / "job.textproto"
    job.write_text(LARGE.format(steps=STEPS))
    events = traced(where, job, workers=1, shards=1)

    def spans(name):
        return sorted((event["ts"], event["ts"] + event["dur"]) for event in events if event["ph"] == "X" and event["name"] == name)

    def begun_in(span, what):
        begun = [event["ts"] for event in events if event["ph"] == "b" and event["name"].startswith(what)]
        return sum(span[0] <= moment <= span[1] for moment in begun)

    forwards, backwards = spans("forward"), spans("backward")
    assert len(forwards) == len(backwards) == STEPS, (forwards, backwards)
    pushes = [begun_in(backward, "pushing") for backward in backwards]
    assert all(count > 0 for count in pushes), pushes
    # The first values are pulled whole.
    pulls = [begun_in(forward, "pulling") for forward in forwards]
    assert pulls[0] == 0 and all(count > 0 for count in pulls[1:]), pulls


if __name__ == "__main__":
    sys.exit(main(a_worker_writes_what_it_did, a_large_model_travels_while_it_is_computed))
