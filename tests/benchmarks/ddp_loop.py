"""One of the processes of a plain DistributedDataParallel training over Gloo, for ddp_benchmark. Rank 0 prints samples/s.

    ddp_loop.py MODEL BATCH STEPS RANK PROCESSES STORE
"""

import sys
import time

import torch
import torch.distributed
import torchvision
from torch import nn

WARM_UP = 5  # steps


class SimpleCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 50, 5), nn.Conv2d(50, 75, 5)
        self.fc1, self.fc2 = nn.Linear(1200, 50), nn.Linear(50, 10)

    def forward(self, x):
        x = torch.relu(torch.max_pool2d(self.conv1(x), 2))
        x = torch.relu(torch.max_pool2d(self.conv2(x), 2))
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def main(model, batch, steps, rank, processes, store):
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=processes)
    shape = (1, 28, 28) if model == "simple_cnn" else (3, 32, 32)
    network = SimpleCnn() if model == "simple_cnn" else torchvision.models.resnet50(num_classes=10)
    network = nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.Adam(network.parameters(), 0.001)
    x, y = torch.randn(2000, *shape), torch.randint(10, (2000,))
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            torch.distributed.barrier()
            began = time.monotonic()
        chosen = torch.randint(2000, (batch,))
        loss = nn.functional.cross_entropy(network(x[chosen]), y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
    torch.distributed.barrier()
    if rank == 0:
        print(processes * batch * steps / (time.monotonic() - began), flush=True)
    torch.distributed.destroy_process_group()


main(sys.argv[1], *map(int, sys.argv[2:6]), sys.argv[6])
