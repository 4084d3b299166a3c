"""A step that takes longer than the lease of the links between its processes is waited for."""

import sys

sys.path.insert(0, "tests/process")
import numpy as np
from safetensors.numpy import save_file
from support.jobs import Run, main

# Two microbatches through two stages: 3 * (4 s + 8 s). The lease is 4 * liveness + 30 s, 34 s. For the whole step stage 0 has nothing to tell
# its worker.
JOB = """
name: "slow"
seed: 1
model {{ sleeping {{ layers: 2 forward_seconds: 4 input_gradient_seconds: 4 weight_gradient_seconds: 4 }} }}
data {{ safetensors {{ train: "{data}" }} batch: 2 shuffle: false }}
optimizer {{ sgd {{ rate: 0.001 }} }}
cluster {{ workers: 1 shards: 1 stages: 2 }}
pipeline {{ cut_before: "sleeping.1" }}
accumulate: 2
threads: 1
liveness: "1s"
stall_timeout: "60s"
steps: 1
checkpoint {{ at_end: false }}
"""


def a_step_is_longer_than_the_lease(where, runs):
    save_file({"x": np.ones((8, 4), dtype=np.float32), "y": np.arange(8, dtype=np.int64) % 4}, where / "data.safetensors")
    job = where / "job.textproto"
    job.write_text(JOB.format(data=where / "data.safetensors"))
    run = Run(job)
    runs.append(run)
    assert run.wait(200) == 0
    logs = run.logs()
    assert all("gives up" not in log for log in logs.values())


main(a_step_is_longer_than_the_lease)
