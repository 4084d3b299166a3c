"""Bar 3: a checkpoint goes on in PyTorch. Parameters and optimizer state load by PyTorch's names into torch.optim, as
docs/checkpoints.md shows, and as many steps there as here give the same within 1e-6 of each tensor's largest value.

PyTorch here is Debian's own build, not the LibTorch that the worker links.
"""

import argparse
import contextlib
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, "tests/process")
import torch
from safetensors.torch import load_file
from support import given_gradients
from support.given_gradients import GivenGradients
from support.jobs import Run, passes
from support.programs import program

BAR = 1e-6
BEFORE, AFTER = 6, 7  # steps: in the checkpoint, and from it on

# Parameters that begin to train later than the others have a step count of their own: 2 in the checkpoint, and 0.
LATE, LATER = 4, BEFORE
OVERRIDES = f'overrides {{ pattern: "late" frozen_until_step: {LATE} }} overrides {{ pattern: "later" frozen_until_step: {LATER} }}'

# Name, the job's optimizer, torch's, and whether it is in the short form: each kind of state at its richest.
CASES = [
    ("sgd", "sgd { rate: 0.05 momentum: 0.9 weight_decay: 0.01 }", lambda p: torch.optim.SGD(p, 0.05, 0.9, weight_decay=0.01), False),
    ("dampened", "sgd { rate: 0.05 momentum: 0.9 dampening: 0.3 }", lambda p: torch.optim.SGD(p, 0.05, 0.9, dampening=0.3), True),
    ("nesterov", "sgd { rate: 0.05 momentum: 0.9 nesterov: true }", lambda p: torch.optim.SGD(p, 0.05, 0.9, nesterov=True), False),
    ("adam", "adam { rate: 0.003 weight_decay: 0.02 }", lambda p: torch.optim.Adam(p, 0.003, weight_decay=0.02), False),
    ("amsgrad", "adam { rate: 0.003 amsgrad: true }", lambda p: torch.optim.Adam(p, 0.003, amsgrad=True), True),
    ("adamw", "adamw { rate: 0.003 }", lambda p: torch.optim.AdamW(p, 0.003), True),
    (
        "adagrad",
        "adagrad { rate: 0.05 rate_decay: 0.01 initial_accumulator: 0.1 }",
        lambda p: torch.optim.Adagrad(p, 0.05, lr_decay=0.01, initial_accumulator_value=0.1),
        True,
    ),
    ("rmsprop", "rmsprop { rate: 0.003 }", lambda p: torch.optim.RMSprop(p, 0.003), False),
    (
        "centered",
        "rmsprop { rate: 0.001 momentum: 0.5 centered: true epsilon: 1e-6 }",
        lambda p: torch.optim.RMSprop(p, 0.001, momentum=0.5, centered=True, eps=1e-6),
        True,
    ),
]


def snippet():
    """What docs/checkpoints.md tells a user to do with `model`, `optimizer` and the folder EXPORT."""
    blocks = re.findall(r"```python\n(.*?)```", pathlib.Path("docs/checkpoints.md").read_text(), re.S)
    (block,) = [block for block in blocks if "optimizer.load_state_dict" in block]
    return compile(block, "docs/checkpoints.md", "exec")


@contextlib.contextmanager
def inside(folder):
    """In it as the current one."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def finished(runs, job, *arguments):
    """The folder of the run's checkpoints."""
    run = Run(job, *arguments)
    runs.append(run)
    assert run.wait() == 0
    return run.out / "checkpoints"


def export(checkpoints, out):
    done = subprocess.run([program("parley"), "checkpoint", "export", str(checkpoints), "--out", str(out)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return load_file(out / "model.safetensors"), load_file(out / "optimizer.safetensors")


def difference(ours, theirs):
    if theirs.numel() == 0 or torch.equal(ours, theirs):
        return 0.0
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


def goes_on(where, runs, name, optimizer, make):
    gradients = given_gradients.write(where, BEFORE + AFTER)
    job = given_gradients.job(where, name, f"{optimizer} {OVERRIDES}", BEFORE + AFTER)
    checkpoints = finished(runs, job, "--set", f"steps={BEFORE}")
    rest = finished(runs, job, "--set", f"checkpoint.start_from={checkpoints}")
    before, _ = export(checkpoints, where / "EXPORT")
    parameters, state = export(rest, where / "rest")
    assert not any(torch.equal(parameters[key], value) for key, value in before.items() if value.is_floating_point()), "nothing was trained"

    model = GivenGradients(seed=1)
    torch_optimizer = make(model.parameters())
    told = snippet()
    with inside(where):
        exec(told, {"model": model, "optimizer": torch_optimizer})
    for step in range(BEFORE, BEFORE + AFTER):
        for key, parameter in model.named_parameters():
            parameter.grad = gradients[step][key].clone()
        torch_optimizer.step()

    worst = 0.0
    for key, parameter in model.named_parameters():
        worst = max(worst, difference(parameters[key], parameter.detach()))
        theirs = torch_optimizer.state[parameter]
        # What is None there is nowhere here, and PyTorch's SGD counts no steps.
        names = {part for part, value in theirs.items() if value is not None}
        assert names == {k[len(key) + 1 :] for k in state if k.startswith(key + ".")}, (key, names, list(state))
        for part in names - {"step"}:
            worst = max(worst, difference(state[f"{key}.{part}"], theirs[part]))
        if "step" in names:
            frozen = {"late": LATE, "later": LATER}.get(key, 0)
            assert state[f"{key}.step"].item() == float(theirs["step"]) == BEFORE + AFTER - frozen, (key, state[f"{key}.step"], theirs["step"])
    assert torch.equal(parameters["constant"], before["constant"])
    print(f"{name}: {BEFORE} steps here, then {AFTER} more here and in PyTorch: largest difference {worst:.2g}")
    assert worst <= BAR, worst


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("--all", action="store_true", help="every optimizer; else those of the short form")
    everything = flags.parse_args().all
    failed = 0
    for name, optimizer, make, short in CASES:
        if not short and not everything:
            continue

        def test(where, runs, name=name, optimizer=optimizer, make=make):
            goes_on(where, runs, name, optimizer, make)

        test.__name__ = f"goes_on_{name}"
        failed += not passes(test)
    sys.exit(1 if failed else 0)


main()
