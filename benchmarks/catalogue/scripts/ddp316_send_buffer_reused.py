# expect: DDP316
# ranks: 2 4
# culprits: 0
# outcome: any
# plain: S
"""The first process reads samples and sends them to the others from one buffer."""

import torch
import torch.distributed as dist

SAMPLE = (64, 64)
ROUNDS = 3


def reader(size):
    buffer = torch.empty(SAMPLE)
    for number in range(ROUNDS):
        pending = []
        for worker in range(1, size):
            buffer.fill_(100 * number + worker)  # <- culprit
            pending.append(dist.isend(buffer, dst=worker))  # <- culprit
            buffer.zero_()  # <- culprit
        for request in pending:
            request.wait()


def worker(rank):
    sample = torch.empty(SAMPLE)
    means = []
    for _ in range(ROUNDS):
        dist.recv(sample, src=0)
        means.append(sample.mean().item())
    print(f"rank {rank} got {means}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        reader(dist.get_world_size())
    else:
        worker(dist.get_rank())
    dist.barrier()
    dist.destroy_process_group()
