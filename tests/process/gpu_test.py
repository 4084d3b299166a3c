"""Training on a real GPU, by the real plugin: as good as on the CPU, with one worker and with two on it (tag gpu)."""

import shutil
import sys

sys.path.insert(0, "tests/process")
import safetensors.torch
import torch
from support.jobs import Run, exported, main, small_job
from support.programs import BIN

shutil.copy("worker/cuda/libparley_cuda.so", BIN / "libparley_cuda.so")


def trained(where, runs, device, *arguments):
    run = Run(small_job(where, epochs=2, extra=f"device: {device}\n"), *arguments)
    runs.append(run)
    assert run.wait(280) == 0, device
    return run


def trains_as_on_the_cpu(where, runs):
    one = ["--set", "cluster.workers=1", "--set", "accumulate=2"]
    outcomes = {}
    for device in ("CPU", "CUDA", "AUTO"):
        run = trained(where, runs, device, *one)
        assert ("computes on a GPU device=" in run.logs()["worker-0"]) == (device != "CPU"), run.logs()["worker-0"]
        outcomes[device] = safetensors.torch.load(exported(run.out)[0])
    # Not the same bits: another order of sums, and Adam makes steps of about its rate whatever the gradient's size.
    for device in ("CUDA", "AUTO"):
        for name, expected in outcomes["CPU"].items():
            far = (outcomes[device][name] - expected).abs().max().item()
            print(f"{device}: {name}: up to {far:.3g} from the CPU's")
            assert far < 0.02, (device, name, far)
            assert torch.isfinite(outcomes[device][name]).all()


def two_workers_share_the_gpus(where, runs):
    run = trained(where, runs, "CUDA")
    for worker in ("worker-0", "worker-1"):
        assert "computes on a GPU device=" in run.logs()[worker], run.logs()[worker]


main(trains_as_on_the_cpu, two_workers_share_the_gpus)
