"""What a job leaves is readable by Python: safetensors, PyTorch; and a network scripted in PyTorch trains here.

PyTorch here is Debian's own build, not the LibTorch that the worker links.
"""

import json
import re
import subprocess
import sys

sys.path.insert(0, "tests/process")
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from support import data
from support.jobs import Run, main, small_job
from support.programs import program


class SimpleCnn(torch.nn.Module):
    """The LRZ course's network, as its users write it."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 50, 5)
        self.conv2 = torch.nn.Conv2d(50, 75, 5)
        self.fc1 = torch.nn.Linear(1200, 50)
        self.fc2 = torch.nn.Linear(50, 10)

    def forward(self, x):
        x = torch.relu(torch.max_pool2d(self.conv1(x), 2))
        x = torch.relu(torch.max_pool2d(self.conv2(x), 2))
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def exported(run):
    """Parameters and optimizer state, by `parley checkpoint`, of the run's checkpoint."""
    checkpoints = run.out / "checkpoints"

    def checkpoint(command, *arguments):
        return subprocess.run([program("parley"), "checkpoint", command, str(checkpoints), *arguments], capture_output=True, text=True)

    for command in ("inspect", "verify"):
        done = checkpoint(command)
        assert done.returncode == 0, done.stderr
    no_folder = str(run.out / "job.textproto")
    done = checkpoint("export", "--out", no_folder)
    assert done.returncode == 2 and no_folder in done.stderr, done
    done = checkpoint("export", "--out", str(run.out / "export"))
    assert done.returncode == 0, done.stderr
    return load_file(run.out / "export/model.safetensors"), load_file(run.out / "export/optimizer.safetensors")


def reported_accuracy(run):
    """Of the last evaluation, from the table at the end."""
    found = re.findall(r"accuracy\D*(0\.\d+|1\.0+)", run.stdout())
    assert found, run.stdout()
    return float(found[-1])


def accuracy(model, folder):
    pixels, labels = data.images(200, 2)
    with torch.no_grad():
        predicted = model(torch.from_numpy(pixels).float().div(255).unsqueeze(1)).argmax(1)
    return (predicted == torch.from_numpy(labels.astype(np.int64))).float().mean().item()


def the_final_checkpoint_is_the_network_that_was_evaluated(where, runs):
    run = Run(small_job(where, epochs=4))
    runs.append(run)
    assert run.wait() == 0
    parameters, state = exported(run)

    model = SimpleCnn()
    missing = model.load_state_dict(parameters)
    assert not missing.missing_keys and not missing.unexpected_keys
    got, told = accuracy(model, where), reported_accuracy(run)
    print(f"accuracy: reported {told}, of the exported network in PyTorch {got}")
    assert abs(got - told) <= 0.0005 and got > 0.5, (got, told)

    for name, parameter in model.named_parameters():
        for part in ("exp_avg", "exp_avg_sq"):
            assert state[f"{name}.{part}"].shape == parameter.shape
        assert state[f"{name}.step"].item() == 4 * 15  # 600 samples, 2 workers with 20 each


def a_run_starts_from_a_checkpoint(where, runs):
    first = Run(small_job(where, epochs=2, extra='consistency { sync { deterministic: true } }'))
    runs.append(first)
    assert first.wait() == 0
    whole = Run(small_job(where, epochs=4, extra='consistency { sync { deterministic: true } }'))
    runs.append(whole)
    assert whole.wait() == 0
    rest = Run(
        small_job(where, epochs=4, extra='consistency { sync { deterministic: true } }'),
        "--set", f"checkpoint.start_from={first.out}/checkpoints", "--set", "cluster.shards=3",
    )
    runs.append(rest)
    assert rest.wait() == 0
    for resumed, straight in zip(exported(rest), exported(whole)):
        assert resumed.keys() == straight.keys()
        for name in straight:
            assert torch.equal(resumed[name], straight[name]), name
    print("2 epochs and 2 more from the checkpoint, on 3 shards: bitwise the 4 epochs in one go on 2")


def a_scripted_network_trains_and_loads_back(where, runs):
    class Mine(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(12, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 3)
            )

        def forward(self, x):
            return self.layers(x)

    torch.manual_seed(5)
    x = torch.randn(400, 12)
    y = (x[:, :3] + 0.5 * x[:, 3:6]).argmax(1)
    save_file({"x": x[:300].contiguous(), "y": y[:300].contiguous()}, where / "train.safetensors")
    save_file({"x": x[300:].contiguous(), "y": y[300:].contiguous()}, where / "test.safetensors")
    model = Mine()
    torch.jit.script(model).save(str(where / "mine.pt"))
    job = where / "job.textproto"
    job.write_text(
        f"""
name: "mine"
model {{ torchscript: "mine.pt" }}
data {{ safetensors {{ train: "train.safetensors" test: "test.safetensors" }} batch: 25 }}
optimizer {{ adam {{ rate: 0.01 }} }}
cluster {{ workers: 2 shards: 2 }}
threads: 1
epochs: 20
"""
    )
    run = Run(job)
    runs.append(run)
    assert run.wait() == 0
    parameters, state = exported(run)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(parameters)
    assert not torch.equal(before["layers.0.weight"], parameters["layers.0.weight"])
    assert parameters["layers.1.num_batches_tracked"].dtype == torch.int64
    assert parameters["layers.1.num_batches_tracked"].item() == 20 * 6
    model.eval()
    with torch.no_grad():
        got = (model(x[300:]).argmax(1) == y[300:]).float().mean().item()
    told = reported_accuracy(run)
    print(f"accuracy of the scripted network: reported {told}, in PyTorch {got}")
    assert abs(got - told) <= 0.0005 and got > 0.7, (got, told)
    assert not any(name.startswith("layers.1.running") for name in state), "buffers have no optimizer state"


main(
    the_final_checkpoint_is_the_network_that_was_evaluated,
    a_run_starts_from_a_checkpoint,
    a_scripted_network_trains_and_loads_back,
)
