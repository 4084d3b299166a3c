"""One of two processes that hand a tensor to and fro by PyTorch's RPC, for rpc_hop_benchmark. Rank 0 prints KiB and microseconds.

    rpc_hop_loop.py RANK STORE any|tcp ROUNDS KIB...
"""

import statistics
import sys
import time

import torch
from torch.distributed import rpc


def give_back(tensor):
    return tensor


def main(rank, store, transport, rounds, sizes):
    torch.set_num_threads(1)
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{store}")
    if transport == "tcp":
        options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{store}", _transports=["uv"], _channels=["basic"])
    rpc.init_rpc(f"process{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    if rank == 0:
        for kib in sizes:
            tensor = torch.ones(kib * 256)
            times = []
            for _ in range(rounds):
                began = time.monotonic()
                rpc.rpc_sync("process1", give_back, args=(tensor,))
                times.append(time.monotonic() - began)
            print(f"{kib} {1e6 * statistics.median(times) / 2:.1f}", flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:4], int(sys.argv[4]), [int(kib) for kib in sys.argv[5:]])
