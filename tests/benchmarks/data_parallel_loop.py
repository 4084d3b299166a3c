"""One of the processes of a plain PyTorch training, for data_parallel_benchmark. One of them prints samples/s.

    data_parallel_loop.py DDP|HOROVOD|RPC MODEL SAMPLES BATCH STEPS RANK WORKERS STORE

DDP: DistributedDataParallel over Gloo. HOROVOD: its DistributedOptimizer, over Gloo; it gives ranks itself. RPC: the parameter server of
PyTorch's tutorial "Implementing Batch RPC Processing Using Asynchronous Executions", rank WORKERS: a worker sends its gradients and is
given the network when the server has had those of all.
"""

import os
import sys
import threading
import time

import torch
import torch.distributed
import torchvision
from safetensors.torch import load_file
from torch import nn
from torch.distributed import rpc


class SimpleCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 50, 5), nn.Conv2d(50, 75, 5)
        self.fc1, self.fc2 = nn.Linear(1200, 50), nn.Linear(50, 10)

    def forward(self, x):
        x = torch.relu(torch.max_pool2d(self.conv1(x), 2))
        x = torch.relu(torch.max_pool2d(self.conv2(x), 2))
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def network_of(model):
    return SimpleCnn() if model == "simple_cnn" else torchvision.models.resnet50(num_classes=10)


def batches(samples, batch, steps, rank, workers):
    """What a parley job's workers take: the shares of their own in one order of all samples."""
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(1))
    for step in range(steps):
        begin = (step * workers + rank) * batch
        yield order[torch.arange(begin, begin + batch) % samples]


def steps_of(network, optimizer, data, batch, steps, rank, workers):
    """Seconds of a loop that is the same with DDP and with Horovod: both add up gradients by themselves."""
    x, y = data["x"], data["y"]
    began = time.monotonic()
    for chosen in batches(len(y), batch, steps, rank, workers):
        loss = nn.functional.cross_entropy(network(x[chosen]), y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
    return time.monotonic() - began


def with_ddp(model, data, batch, steps, rank, workers, store):
    """Seconds, at worker 0."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=workers)
    network = nn.parallel.DistributedDataParallel(network_of(model))
    optimizer = torch.optim.Adam(network.parameters(), 0.001)
    torch.distributed.barrier()  # all have rank 0's initial values, as when a parley job's clock begins
    took = steps_of(network, optimizer, data, batch, steps, rank, workers)
    torch.distributed.destroy_process_group()
    return took if rank == 0 else None


def with_horovod(model, data, batch, steps, rank, workers, store):
    """Seconds, at worker 0."""
    import horovod.torch as horovod

    horovod.init()
    assert horovod.size() == workers
    rank = horovod.rank()
    network = network_of(model)
    optimizer = horovod.DistributedOptimizer(torch.optim.Adam(network.parameters(), 0.001), named_parameters=network.named_parameters())
    horovod.broadcast_parameters(network.state_dict(), root_rank=0)
    horovod.barrier()
    took = steps_of(network, optimizer, data, batch, steps, rank, workers)
    horovod.shutdown()
    return took if rank == 0 else None


class ParameterServer:
    """The tutorial's, but for the sum of the gradients, which is kept beside the parameters' own."""

    def __init__(self, model, workers):
        self.network = network_of(model)
        self.optimizer = torch.optim.Adam(self.network.parameters(), 0.001)
        self.workers = workers
        self.lock = threading.Lock()
        self.waiting = torch.futures.Future()
        self.came = 0
        for parameter in self.network.parameters():
            parameter.grad = torch.zeros_like(parameter)

    def network_now(self):
        return self.network

    @staticmethod
    @rpc.functions.async_execution
    def update_and_fetch(server, gradients):
        self = server.local_value()
        with self.lock:
            for parameter, gradient in zip(self.network.parameters(), gradients):
                parameter.grad += gradient
            self.came += 1
            waiting = self.waiting
            if self.came == self.workers:
                for parameter in self.network.parameters():
                    parameter.grad /= self.workers
                self.came = 0
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=False)
                waiting.set_result(self.network)
                self.waiting = torch.futures.Future()
        return waiting


samples = {}  # of this process, by RPC


def train(server, batch, steps, rank, workers):
    """A worker's loop, called by the server; seconds."""
    x, y = samples["x"], samples["y"]
    network = server.rpc_sync().network_now()
    zeros = [torch.zeros_like(parameter) for parameter in network.parameters()]
    # All have the initial values: an update by zeros, by which Adam does not move.
    network = rpc.rpc_sync(server.owner(), ParameterServer.update_and_fetch, args=(server, zeros))
    began = time.monotonic()
    for chosen in batches(len(y), batch, steps, rank, workers):
        loss = nn.functional.cross_entropy(network(x[chosen]), y[chosen])
        loss.backward()
        gradients = [parameter.grad for parameter in network.parameters()]
        network = rpc.rpc_sync(server.owner(), ParameterServer.update_and_fetch, args=(server, gradients))
        loss.item()
    return time.monotonic() - began


def with_rpc(model, data, batch, steps, rank, workers, store):
    """Seconds, at the server."""
    samples.update(data)
    serving = rank == workers
    if serving:
        torch.set_num_threads(os.cpu_count())
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{store}", rpc_timeout=600)
    rpc.init_rpc(f"process{rank}", rank=rank, world_size=workers + 1, rpc_backend_options=options)
    took = None
    if serving:
        server = rpc.RRef(ParameterServer(model, workers))
        running = [rpc.rpc_async(f"process{worker}", train, args=(server, batch, steps, worker, workers)) for worker in range(workers)]
        took = max(call.wait() for call in running)
    rpc.shutdown()
    return took


def main(way, model, path, batch, steps, rank, workers, store):
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    took = {"DDP": with_ddp, "HOROVOD": with_horovod, "RPC": with_rpc}[way](model, load_file(path), batch, steps, rank, workers, store)
    if took is not None:
        print(workers * batch * steps / took, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:8]), sys.argv[8])
