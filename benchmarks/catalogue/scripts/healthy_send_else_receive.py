# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
"""The first rank hands out work and takes results; the others do it the other way round."""

import torch
import torch.distributed as dist

ROUNDS, SIZE = 6, 32


def coordinator(world):
    totals = torch.zeros(SIZE)
    for round_number in range(ROUNDS):
        for worker in range(1, world):
            dist.send(torch.full((SIZE,), float(round_number * world + worker)), dst=worker)
        for worker in range(1, world):
            result = torch.empty(SIZE)
            dist.recv(result, src=worker)
            totals += result
    return totals


def worker():
    task = torch.empty(SIZE)
    for _ in range(ROUNDS):
        dist.recv(task, src=0)
        dist.send(task.sqrt(), dst=0)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        print("sum of the results", coordinator(dist.get_world_size())[0].item(), flush=True)
    else:
        worker()
    dist.barrier()
    dist.destroy_process_group()
