"""One of the processes of a plain DistributedDataParallel training over Gloo, for ddp_benchmark. Rank 0 prints samples/s.

    ddp_loop.py MODEL SAMPLES BATCH STEPS RANK PROCESSES STORE
"""

import sys
import time

import torch
import torch.distributed
import torchvision
from safetensors.torch import load_file
from torch import nn


class SimpleCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 50, 5), nn.Conv2d(50, 75, 5)
        self.fc1, self.fc2 = nn.Linear(1200, 50), nn.Linear(50, 10)

    def forward(self, x):
        x = torch.relu(torch.max_pool2d(self.conv1(x), 2))
        x = torch.relu(torch.max_pool2d(self.conv2(x), 2))
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def batches(samples, batch, steps, rank, processes):
    """What a parley job's workers take: the shares of their own in one order of all samples."""
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(1))
    for step in range(steps):
        begin = (step * processes + rank) * batch
        yield order[torch.arange(begin, begin + batch) % samples]


def main(model, samples, batch, steps, rank, processes, store):
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=processes)
    data = load_file(samples)
    x, y = data["x"], data["y"]
    network = SimpleCnn() if model == "simple_cnn" else torchvision.models.resnet50(num_classes=10)
    network = nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.Adam(network.parameters(), 0.001)
    torch.distributed.barrier()  # all have rank 0's initial values, as when a parley job's clock begins
    began = time.monotonic()
    for chosen in batches(len(y), batch, steps, rank, processes):
        loss = nn.functional.cross_entropy(network(x[chosen]), y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
    torch.distributed.barrier()
    if rank == 0:
        print(processes * batch * steps / (time.monotonic() - began), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:7]), sys.argv[7])
