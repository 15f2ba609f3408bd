"""Two tasks share a trunk: even ranks train the head of task A, odd ranks that of task B.

usage: torchrun --nproc-per-node 4 multitask.py [--steps N] [--stuck-after SECONDS]
"""

import argparse
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import _dump_fr_trace

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--stuck-after", type=float, default=300, help="write a dump if a step takes longer")
args = parser.parse_args()


def dump():
    """Write what the flight recorder holds: gloo has no watchdog that does."""
    with open(f"trace_rank_{dist.get_rank()}.pickle", "wb") as file:
        file.write(_dump_fr_trace(True, True, False))


def average_gradients(module, group):
    for weight in module.parameters():
        if weight.grad is not None:
            dist.all_reduce(weight.grad, group=group)
            weight.grad /= dist.get_world_size(group)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    tasks = [dist.new_group([0, 2], group_desc="task_a"), dist.new_group([1, 3], group_desc="task_b")]
    torch.manual_seed(0)
    trunk, head = nn.Linear(8, 16), nn.Linear(16, 1)
    optimizer = torch.optim.SGD([*trunk.parameters(), *head.parameters()], lr=0.01)

    data = torch.Generator().manual_seed(5 + rank)
    for step in range(args.steps):
        alarm = threading.Timer(args.stuck_after, dump)
        alarm.daemon = True
        alarm.start()
        inputs = torch.randn(32, 8, generator=data)
        labelled = torch.rand(32, generator=data) < 0.1  # few examples have a label
        features = torch.relu(trunk(inputs))
        loss = 0.01 * features.square().mean()
        if labelled.any():
            targets = inputs[labelled].sum(1, keepdim=True)
            loss = loss + (head(features[labelled]) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        average_gradients(head, tasks[rank % 2])
        average_gradients(trunk, dist.group.WORLD)
        optimizer.step()
        alarm.cancel()
        if rank == 0 and step % 5 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
