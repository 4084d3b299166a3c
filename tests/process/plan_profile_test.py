"""`parley plan --profile` measures a pipeline's layers and the hop between its stages, and says how many forwards ahead are worth it."""

import re
import subprocess
import sys

sys.path.insert(0, "tests/process")
import numpy as np
from safetensors.numpy import save_file
from support.jobs import main
from support.programs import program

JOB = """
name: "planned"
model {{ sleeping {{ layers: 3 forward_seconds: 0.01 input_gradient_seconds: 0.01 weight_gradient_seconds: 0.01 }} }}
data {{ safetensors {{ train: "{data}" }} batch: 2 }}
optimizer {{ sgd {{ rate: 0.001 }} }}
cluster {{ workers: 1 shards: 1 stages: 3 }}
pipeline {{ schedule: EAGER cut_before: "sleeping.1" cut_before: "sleeping.2" }}
accumulate: 8
threads: 1
epochs: 1
"""


def plan(job, *arguments):
    return subprocess.run([program("parley"), "plan", str(job), *arguments], capture_output=True, text=True, timeout=300)


def made(where):
    data, job = where / "data.safetensors", where / "job.textproto"
    save_file({"x": np.ones((64, 256), dtype=np.float32), "y": np.arange(64, dtype=np.int64) % 4}, data)
    job.write_text(JOB.format(data=data))
    return job


def number(pattern, text):
    found = re.search(pattern, text, re.MULTILINE)
    assert found, f"{pattern} is not in\n{text}"
    return float(found.group(1))


def the_hop_is_measured_and_a_slow_one_asks_for_forwards_ahead(where, runs):
    job = made(where)
    here = plan(job, "--profile=0.5")
    assert here.returncode == 0, here.stderr
    hop = number(r"^hop +([0-9.]+) ms between two stages \(2\.00 KiB over TCP within this machine\)$", here.stdout)
    assert 0.005 < hop < 1000, hop
    # 8 microbatches of 30 ms, and two more in and out, at least.
    assert number(r"^forwards ahead +. of at most 2 are worth it: ([0-9.]+) s a step", here.stdout) > 0.29
    slow = plan(job, "--profile=0.5", "--hop=5")
    assert slow.returncode == 0, slow.stderr
    assert "5.000 ms between two stages, as given\n" in slow.stdout, slow.stdout
    assert number(r"^forwards ahead +(.) of at most 2 ", slow.stdout) >= 1, slow.stdout


def what_does_not_fit_is_refused(where, runs):
    job = made(where)
    little = plan(job, "--profile=0.1", "--stage_memory=100")
    assert little.returncode == 2 and "bytes" in little.stderr, (little.returncode, little.stderr)
    enough = plan(job, "--profile=0.1", "--stage_memory=1GB")
    assert enough.returncode == 0 and "are worth it within 1.00 GiB a stage" in enough.stdout, (enough.stderr, enough.stdout)
    for wrong in (["--hop=5"], ["--profile=1", "--hop=-1"], ["--profile=1", "--stage_memory=lots"]):
        refused = plan(job, *wrong)
        assert refused.returncode == 2 and refused.stderr, (wrong, refused)


if __name__ == "__main__":
    sys.exit(main(the_hop_is_measured_and_a_slow_one_asks_for_forwards_ahead, what_does_not_fit_is_refused))
