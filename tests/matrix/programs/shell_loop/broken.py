# command: sh -c 'for r in 0 1; do RANK=$r WORLD_SIZE=2 python broken.py & done; wait'
# plain: hang
# outcome: hang
# expect: DDP308
# culprits: 1
"""A shell loop that starts one process per rank; rank 1 has fewer batches."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def batches_of(rank):
    generator = torch.Generator().manual_seed(rank)
    return [torch.randn(8, 8, generator=generator) for _ in range(6 - rank)]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, x in enumerate(batches_of(rank)):
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()  # <- culprit
        optimizer.step()
        if rank == 0:
            print(f"step {step}: loss {loss.item():.6f}")
    dist.barrier()  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
