"""Training on a real GPU, by the real plugin, as good as on the CPU: three networks by their loss curves and parameters, two
workers, a node group, and bfloat16 and float16 (tag gpu).
"""

import json
import pathlib
import shutil
import sys

sys.path.insert(0, "tests/process")
import safetensors.torch
import torch
from support import data
from support.jobs import Run, exported, main, small_job
from support.programs import BIN

shutil.copy("worker/cuda/libparley_cuda.so", BIN / "libparley_cuda.so")

# With SGD a difference stays about as large as it is. (Adam makes steps of about its rate whatever the gradient's size.)
JOB = """
name: "gpu"
seed: 5
model {{ {model} }}
data {{ {data} batch: {batch} }}
optimizer {{ sgd {{ rate: {rate} momentum: 0.9 }} }}
cluster {{ workers: 1 shards: 1 }}
device: {device}
accumulate: 2
steps: 40
liveness: "10s"
"""
TEXT = 'text { train: "book.txt" test_share: 0.2 length: 12 columns: 4 }'
NETWORKS = {
    "cnn": dict(model="simple_cnn {}", data='idx { directory: "data" }', batch=20, rate=0.02),
    "resnet": dict(model="resnet { depth: 18 }", data='idx { directory: "data" }', batch=8, rate=0.005),
    "transformer": dict(model="transformer { width: 32 heads: 2 hidden: 48 layers: 2 }", data=TEXT, batch=8, rate=0.05),
}
# Losses: cuDNN computes convolutions in TF32, with 11 bits, unless told otherwise. Parameters: of a tensor's largest value.
LOSS_TOLERANCE = 0.02
PARAMETER_TOLERANCE = 0.05


def job_of(where, name, device):
    folder = where / f"{name}-{device}"
    folder.mkdir()
    data.write_idx(folder / "data")
    (folder / "book.txt").write_text("it was a loom, and its thread was bright. " * 80)
    path = folder / "job.textproto"
    path.write_text(JOB.format(device=device, **NETWORKS[name]))
    return path


def curve(run):
    lines = [json.loads(line) for line in (run.out / "history.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if line["kind"] == "step"}


def trained(where, runs, name, device):
    run = Run(job_of(where, name, device))
    runs.append(run)
    assert run.wait(280) == 0, (name, device)
    assert ("computes on a GPU device=" in run.logs()["worker-0"]) == (device == "CUDA"), run.logs()["worker-0"]
    return curve(run), safetensors.torch.load(exported(run.out)[0])


def learns_as_on_the_cpu(name):
    def test(where, runs):
        expected, parameters = trained(where, runs, name, "CPU")
        losses, found = trained(where, runs, name, "CUDA")
        # Steps that come fast are not all told; the last one is.
        steps = sorted(set(expected) & set(losses))
        assert max(steps) == 40, steps
        worst = max(abs(losses[step] - expected[step]) / expected[step] for step in steps)
        far = max(((found[key] - value).abs().max() / value.abs().max()).item() for key, value in parameters.items() if value.is_floating_point())
        print(f"{name}: losses of {len(steps)} steps within {worst:.3g} of the CPU's, parameters within {far:.3g}")
        assert all(torch.isfinite(value).all() for value in found.values() if value.is_floating_point())
        assert worst <= LOSS_TOLERANCE and far <= PARAMETER_TOLERANCE, (worst, far)

    test.__name__ = f"{name}_learns_as_on_the_cpu"
    return test


def a_pipeline_learns_as_on_the_cpu(where, runs):
    """Two stages, which share a GPU where there is one only."""
    for device in ("CPU", "CUDA"):
        job = job_of(where, "transformer", device)
        text = job.read_text().replace("shards: 1", "shards: 1 stages: 2").replace("accumulate: 2", "accumulate: 4")
        job.write_text(text + "pipeline { schedule: ONE_F_ONE_B }\n")
        run = Run(job)
        runs.append(run)
        assert run.wait(280) == 0, device
        for stage in ("stage-0", "stage-1"):
            assert ("computes on a GPU device=" in run.logs()[stage]) == (device == "CUDA"), run.logs()[stage]
    on_cpu, on_gpu = runs
    expected, losses = curve(on_cpu), curve(on_gpu)
    steps = sorted(set(expected) & set(losses))
    assert max(steps) == 40, steps
    worst = max(abs(losses[step] - expected[step]) / expected[step] for step in steps)
    parameters, found = (safetensors.torch.load(exported(run.out)[0]) for run in runs)
    far = max(((found[key] - value).abs().max() / value.abs().max()).item() for key, value in parameters.items() if value.is_floating_point())
    print(f"pipeline: losses of {len(steps)} steps within {worst:.3g} of the CPU's, parameters within {far:.3g}")
    assert worst <= LOSS_TOLERANCE and far <= PARAMETER_TOLERANCE, (worst, far)


def workers_share_the_gpus(where, runs):
    for cluster in ("workers: 2 shards: 2", "workers: 2 group: 2 group_reduction: ON_HOST shards: 1"):
        job = small_job(where, epochs=2, extra="device: CUDA\n")
        job.write_text(job.read_text().replace("workers: 2 shards: 2", cluster))
        run = Run(job)
        runs.append(run)
        assert run.wait(280) == 0, cluster
        for worker in ("worker-0", "worker-1"):
            assert "computes on a GPU device=" in run.logs()[worker], run.logs()[worker]


def a_node_group_adds_up_on_its_gpus(where, runs):
    """By NCCL, where there are two GPUs; the same as on the host but for the order of sums."""
    if len(list(pathlib.Path("/proc/driver/nvidia/gpus").glob("*"))) < 2:
        print("SKIPPED: it needs two GPUs")
        return
    ends = {}
    for reduction in ("ON_HOST", "ON_GPUS"):
        (where / reduction).mkdir()
        job = job_of(where / reduction, "cnn", "CUDA")
        job.write_text(job.read_text().replace("workers: 1 shards: 1", f"workers: 2 group: 2 group_reduction: {reduction} shards: 1"))
        run = Run(job)
        runs.append(run)
        assert run.wait(280) == 0, reduction
        ends[reduction] = safetensors.torch.load(exported(run.out)[0])
    for name, expected in ends["ON_HOST"].items():
        far = ((ends["ON_GPUS"][name] - expected).abs().max() / expected.abs().max()).item()
        assert far <= PARAMETER_TOLERANCE, (name, far)


def half_precision_learns_too(where, runs):
    accuracies = {}
    for precision in ("FLOAT32", "BFLOAT16_AUTOCAST", "FLOAT16_AUTOCAST"):
        run = Run(small_job(where, epochs=12, extra=f"device: CUDA\nprecision: {precision}\n"))
        runs.append(run)
        assert run.wait(280) == 0, precision
        lines = [json.loads(line) for line in (run.out / "history.jsonl").read_text().splitlines()]
        accuracies[precision] = [line["accuracy"] for line in lines if line["kind"] == "evaluation"][-1]
    print(f"accuracy: {accuracies}")
    assert all(abs(accuracy - accuracies["FLOAT32"]) <= 0.02 for accuracy in accuracies.values()), accuracies


main(*(learns_as_on_the_cpu(name) for name in NETWORKS), a_pipeline_learns_as_on_the_cpu, workers_share_the_gpus, a_node_group_adds_up_on_its_gpus, half_precision_learns_too)
