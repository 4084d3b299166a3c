"""One process of bubble_benchmark's comparison: torch.distributed.pipelining over Gloo, with stages that sleep.

Arguments: schedule, stages, parts of each, microbatches, seconds of a part's forward and backward, steps, rank, store file. Rank
0 prints the median bubble.
"""

import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B


class Sleep(torch.autograd.Function):
    @staticmethod
    def forward(context, x, weight, forward, backward):
        time.sleep(forward)
        context.save_for_backward(x, weight)
        context.seconds = backward
        return x * weight

    @staticmethod
    def backward(context, gradient):
        time.sleep(context.seconds)
        x, weight = context.saved_tensors
        return gradient * weight, (gradient * x).sum().reshape(1), None, None


class Part(torch.nn.Module):
    def __init__(self, forward, backward):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.seconds = (forward, backward)

    def forward(self, x):
        return Sleep.apply(x, self.weight, *self.seconds)


def main():
    name = sys.argv[1]
    stages, parts, microbatches = (int(a) for a in sys.argv[2:5])
    forward, backward = (float(a) for a in sys.argv[5:7])
    steps, rank = int(sys.argv[7]), int(sys.argv[8])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[9]}", rank=rank, world_size=stages)
    device = torch.device("cpu")
    mine = [PipelineStage(Part(forward, backward), part, stages * parts, device) for part in range(rank, stages * parts, stages)]
    loss = lambda output, target: (output - target).square().mean()  # noqa: E731
    if name == "Interleaved1F1B":
        schedule = ScheduleInterleaved1F1B(mine, n_microbatches=microbatches, loss_fn=loss)
    else:
        schedule = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}[name](mine[0], n_microbatches=microbatches, loss_fn=loss)
    x, target = torch.rand(microbatches, 4), torch.zeros(microbatches, 4)
    times = []
    for _ in range(steps):
        dist.barrier()
        began = time.monotonic()
        schedule.step(*([x] if rank == 0 else []), **({"target": target, "losses": []} if rank == stages - 1 else {}))
        took = torch.tensor([time.monotonic() - began], dtype=torch.float64)
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        times.append(took.item())
    busy = microbatches * parts * (forward + backward)
    if rank == 0:
        print(1 - busy / statistics.median(times[1:]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
