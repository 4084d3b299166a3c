"""A network whose gradient is its data: what an optimizer makes of it can be followed in PyTorch bit by bit.

With one sample for each worker in a step, the step's gradient is the mean of the workers' samples, which are cut
into the parameters' shapes. No rounding of a forward or backward comes in between, so that both sides have the same.
"""

import numpy as np
import torch
from safetensors.torch import save_file

# The big one is cut into two slices, which lie on different shards.
SHAPES = {"big": (600, 500), "odd": (7, 11), "one": (), "late": (40,), "later": (3, 5)}
ELEMENTS = sum(int(np.prod(shape)) for shape in SHAPES.values())

WORKERS = 2


class GivenGradients(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.big = torch.nn.Parameter(torch.randn(600, 500))
        self.odd = torch.nn.Parameter(torch.randn(7, 11))
        self.one = torch.nn.Parameter(torch.randn(()))
        self.late = torch.nn.Parameter(torch.randn(40))
        self.later = torch.nn.Parameter(torch.randn(3, 5))
        self.register_buffer("constant", torch.randint(-(2**40), 2**40, (9,)))

    def forward(self, x):
        flat = torch.cat([self.big.flatten(), self.odd.flatten(), self.one.flatten(), self.late, self.later.flatten()])
        sums = (x * flat).sum(1, keepdim=True)
        # 0, and the gradient of the sums: with targets of -0.5 the mean squared error's own factor is 1.
        return sums - sums.detach()


def write(where, steps, seed=7):
    """The network (scripted) and its data for so many steps; the gradients, by step (from 0) and name."""
    torch.manual_seed(seed)
    x = torch.randn(steps * WORKERS, ELEMENTS) * 0.1 + 0.05
    save_file({"x": x, "y": torch.full((steps * WORKERS, 1), -0.5)}, where / "train.safetensors")
    torch.jit.script(GivenGradients(seed)).save(str(where / "network.pt"))
    gradients = []
    for step in range(steps):
        mean = (x[WORKERS * step] + x[WORKERS * step + 1]) / WORKERS
        parts = mean.split([int(np.prod(shape)) for shape in SHAPES.values()])
        gradients.append({name: part.reshape(shape) for (name, shape), part in zip(SHAPES.items(), parts)})
    return gradients


def job(where, name, optimizer, steps, shards=2, extra=""):
    """A job file. `late` and `later` in it, as patterns of the optimizer, are the parameters of these names."""
    path = where / f"{name}.textproto"
    path.write_text(
        f"""
name: "{name}"
model {{ torchscript: "network.pt" }}
data {{ safetensors {{ train: "train.safetensors" }} batch: 1 shuffle: false }}
loss: MEAN_SQUARED_ERROR
optimizer {{ {optimizer} }}
consistency {{ sync {{ deterministic: true }} }}
cluster {{ workers: {WORKERS} shards: {shards} }}
threads: 1
steps: {steps}
{extra}
"""
    )
    return path
