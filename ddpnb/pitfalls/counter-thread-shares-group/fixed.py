"""Fit a slope, while a thread adds up the samples that all ranks have seen."""

import threading

import torch
import torch.distributed as dist

STEPS = 100


def count_samples(seen, group):
    for _ in range(STEPS):
        total = seen.clone()
        dist.all_reduce(total, group=group)
    print(f"{int(total)} samples seen")


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    slope = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([slope], lr=0.1)
    seen = torch.zeros(1)
    counter = threading.Thread(target=count_samples, args=(seen, dist.new_group()))
    counter.start()
    for _ in range(STEPS):
        x = torch.randn(16)
        optimizer.zero_grad()
        (slope * x - 2 * x).square().mean().backward()
        dist.all_reduce(slope.grad)
        slope.grad /= dist.get_world_size()
        optimizer.step()
        seen += len(x)
    counter.join()
    print(f"rank {dist.get_rank()}: slope {slope.item():.3f}")
    dist.destroy_process_group()


main()
