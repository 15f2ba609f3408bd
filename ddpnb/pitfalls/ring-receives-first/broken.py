"""Each rank smooths its part of a signal; the ends are passed on around a ring."""

import torch
import torch.distributed as dist


def pass_on(end):
    rank, size = dist.get_rank(), dist.get_world_size()
    received = torch.empty_like(end)
    dist.recv(received, src=(rank - 1) % size)
    dist.send(end, dst=(rank + 1) % size)
    return received


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    signal = torch.randn(100)
    for _ in range(5):
        left = pass_on(signal[-1:].clone())
        shifted = torch.cat([left, signal[:-1]])
        signal = (signal + shifted) / 2
    print(f"rank {dist.get_rank()}: deviation {signal.std():.3f}")
    dist.destroy_process_group()


main()
