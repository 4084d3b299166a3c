"""A job starts from the weights of a PyTorch model: a safetensors file that anybody has made."""

import subprocess
import sys

sys.path.insert(0, "tests/process")
import torch
from safetensors.torch import load_file, save_file, save_model
from support import given_gradients
from support.given_gradients import GivenGradients
from support.jobs import Run, last_line, main, small_job
from support.programs import program

# The values stay what they are: no parameter is trained.
FROZEN = 'sgd { rate: 0.5 } overrides { pattern: "*" frozen_until_step: 1 }'


def exported(run):
    """Parameters and optimizer state of the run's checkpoint."""
    assert run.wait() == 0
    done = subprocess.run(
        [program("parley"), "checkpoint", "export", str(run.out / "checkpoints"), "--out", str(run.out / "export")],
        capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stderr
    return load_file(run.out / "export/model.safetensors"), load_file(run.out / "export/optimizer.safetensors")


def start_from(path):
    return f'checkpoint {{ start_from: "{path}" }}'


def same(ours, theirs):
    """Bit for bit, with the same names."""
    assert ours.keys() == theirs.keys(), ours.keys() ^ theirs.keys()
    for name, value in theirs.items():
        assert ours[name].dtype == value.dtype and torch.equal(ours[name], value), name


def weights_of_pytorch_are_the_start(where, runs):
    gradients = given_gradients.write(where, steps=1)
    model = GivenGradients(seed=99)  # the script has other values
    save_file(model.state_dict(), where / "weights.safetensors")

    run = Run(given_gradients.job(where, "kept", FROZEN, 1, extra=start_from("weights.safetensors")))
    runs.append(run)
    parameters, state = exported(run)
    same(parameters, model.state_dict())
    assert not state, state.keys()
    loaded = [line for log in ("shard-0", "shard-1") for line in run.logs()[log].splitlines() if "weights.safetensors" in line]
    assert len(loaded) == 2, loaded
    print("2 shards, nothing trained: bitwise the file's values, of 5 parameters and a buffer")

    # The export of a run is a file of weights too; this job trains, with an optimizer that has state.
    run = Run(
        given_gradients.job(
            where, "trained", "sgd { rate: 0.5 momentum: 0.9 dampening: 0.5 }", 1, shards=3, extra=start_from(runs[0].out / "export/model.safetensors")
        )
    )
    runs.append(run)
    parameters, state = exported(run)
    for name, before in model.named_parameters():
        assert torch.equal(parameters[name], before.detach() - 0.5 * gradients[0][name]), name
        assert torch.equal(state[f"{name}.momentum_buffer"], gradients[0][name]), "the first step of a fresh optimizer"
    assert torch.equal(parameters["constant"], model.constant)
    print("one step of SGD from there on 3 shards: bitwise w - 0.5 g, and a momentum that was not there before")


def half_precision_and_tied_names_load(where, runs):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = torch.nn.Linear(6, 6, bias=False)
            self.decoder = torch.nn.Linear(6, 6, bias=False)
            self.decoder.weight = self.encoder.weight
            self.norm = torch.nn.BatchNorm1d(6)

        def forward(self, x):
            return self.decoder(self.norm(self.encoder(x)))

    torch.manual_seed(2)
    torch.jit.script(Tied()).save(str(where / "network.pt"))
    save_file({"x": torch.randn(4, 6), "y": torch.zeros(4, 6)}, where / "train.safetensors")
    model = Tied().half()
    model.norm.num_batches_tracked.fill_(1000)
    save_model(model, str(where / "weights.safetensors"))
    assert len(load_file(where / "weights.safetensors")) == 6, "the tied weight lies there once"
    run = Run(given_gradients.job(where, "tied", FROZEN, 1, extra=start_from("weights.safetensors")), "--set", "data.batch=2")
    runs.append(run)
    parameters, _ = exported(run)
    for name, value in model.named_parameters():
        assert parameters[name].dtype == torch.float32 and torch.equal(parameters[name], value.float()), name
    assert parameters["norm.num_batches_tracked"].item() == 1001, "buffers go on from the file"
    print("float16 weights, tied, as save_model writes them: widened exactly, under the name that the script knows them by")


def what_does_not_match_is_refused_with_the_list(where, runs):
    job = small_job(where, extra=start_from("weights.safetensors") + " steps: 1").read_text().replace("epochs: 1\n", "")
    job_path = where / "job.textproto"
    job_path.write_text(job)
    path = where / "weights.safetensors"
    right = {
        "conv1.weight": torch.randn(50, 1, 5, 5), "conv1.bias": torch.randn(50), "conv2.weight": torch.randn(75, 50, 5, 5),
        "conv2.bias": torch.randn(75), "fc1.weight": torch.randn(50, 1200), "fc1.bias": torch.randn(50),
        "fc2.weight": torch.randn(10, 50), "fc2.bias": torch.randn(10),
    }  # fmt: skip

    def refused(what, *words, flags=()):
        for command in (["plan", str(job_path)], ["run", str(job_path), "--out", str(where / "none")]):
            done = subprocess.run([program("parley"), *command, *flags], capture_output=True, text=True, timeout=300)
            assert done.returncode == 2, (what, command[0], done.returncode, done.stderr)
            assert all(word in last_line(done.stderr) for word in words), (what, words, done.stderr)
            assert not (where / "none").exists(), "nothing has begun"
        print(f"{what}: {last_line(done.stderr)}")

    refused("no file", "checkpoint.start_from: ", str(path), "No such file")
    path.write_bytes(b"PK, as torch.save writes it")
    refused("a pickle", "checkpoint.start_from: ", str(path), "is no safetensors file", "save_file(")
    save_file(right, path)
    path.write_bytes(path.read_bytes()[:-4])
    refused("truncated", "checkpoint.start_from: ", str(path))

    wrong = {name: value for name, value in right.items() if not name.startswith("fc1.")}
    wrong["fc2.weight"] = torch.randn(100, 50)
    wrong["fc2.bias"] = right["fc2.bias"].double()
    wrong["head.weight"] = torch.randn(3, 3)
    save_file(wrong, path)
    everything = [
        "'fc1.weight' F32 [50, 1200]", "'fc1.bias' F32 [50]", "'head.weight' F32 [3, 3]",
        "'fc2.weight' is F32 [10, 50] in the model and F32 [100, 50] in the file", "'fc2.bias' is F32 [10] in the model and F64 [10] in the file",
    ]  # fmt: skip
    refused("another model", "checkpoint.start_from: ", str(path), *everything)

    # Where nobody has looked before, the coordinator does when a worker registers.
    processes = [subprocess.Popen([program("parley-coordinator"), f"--job={job_path}", f"--out={where}/out"], stderr=subprocess.PIPE, text=True)]
    address = f"--coordinator=file:{where}/out/coordinator.address"
    for role in ("shard", "shard", "worker", "worker"):
        processes.append(subprocess.Popen([program(f"parley-{role}"), f"--job={job_path}", address], stderr=subprocess.PIPE, text=True))
    try:
        worker = processes[3]
        _, said = worker.communicate(timeout=300)
        print(f"a worker by itself: exit {worker.returncode}: {last_line(said)}")
        assert worker.returncode in (1, 2) and all(word in last_line(said) for word in everything), said
    finally:
        for process in processes:
            process.kill()
            process.communicate()

    more = {**right, "head.weight": torch.randn(3, 3)}
    save_file(more, path)
    refused("one too many", "'head.weight' F32 [3, 3]", "checkpoint.ignore_unexpected")
    run = Run(job_path, "--set", "checkpoint.ignore_unexpected=true", "--set", f"optimizer={{ {FROZEN} }}")
    runs.append(run)
    same(exported(run)[0], right)
    done = subprocess.run(
        [program("parley"), "plan", str(job_path), "--set", "checkpoint.ignore_unexpected=true"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and f"starts from          {path}: parameters and buffers" in done.stdout, done.stdout + done.stderr


main(weights_of_pytorch_are_the_start, half_precision_and_tied_names_load, what_does_not_match_is_refused_with_the_list)
