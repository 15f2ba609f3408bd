# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
"""An embedding table that is split over the ranks (rows by modulo) under a replicated tower."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

VOCAB, DIM = 101, 8


class Exchange(torch.autograd.Function):
    """Sum of the partial rows of all ranks; each rank goes on with its own slice of the batch."""

    @staticmethod
    def forward(ctx, partial, rank):
        total = partial.detach().clone()
        dist.all_reduce(total)
        return total.chunk(dist.get_world_size())[rank].clone()

    @staticmethod
    def backward(ctx, grad):
        parts = [torch.empty_like(grad) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, grad.contiguous())
        return torch.cat(parts), None


class ShardedEmbedding(nn.Module):
    def __init__(self, rank, world):
        super().__init__()
        self.rank, self.world = rank, world
        rows = len(range(rank, VOCAB, world))
        gen = torch.Generator().manual_seed(rank)
        self.weight = nn.Parameter(torch.randn(rows, DIM, generator=gen) * 0.1)

    def forward(self, ids):
        everyone = [torch.empty_like(ids) for _ in range(self.world)]
        dist.all_gather(everyone, ids)
        ids = torch.cat(everyone)
        mine = ids % self.world == self.rank
        rows = self.weight[torch.where(mine, ids // self.world, 0)]
        return Exchange.apply(rows * mine.unsqueeze(1), self.rank)


def batches(rank, n=12, size=16):
    gen = torch.Generator().manual_seed(50 + rank)
    for _ in range(n):
        ids = torch.randint(0, VOCAB, (size,), generator=gen)
        yield ids, torch.sin(ids.float() / 7).unsqueeze(1)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    table = ShardedEmbedding(rank, world)
    torch.manual_seed(0)
    tower = DDP(nn.Sequential(nn.Linear(DIM, 16), nn.ReLU(), nn.Linear(16, 1)))
    dense = torch.optim.AdamW(tower.parameters(), lr=0.01)
    # big shards get smaller steps, the shards belong to one rank each
    sparse = torch.optim.Adagrad(table.parameters(), lr=5.0 / table.weight.shape[0] / (1 + 0.1 * rank))
    for step, (ids, y) in enumerate(batches(rank)):
        dense.zero_grad()
        sparse.zero_grad()
        loss = nn.functional.mse_loss(tower(table(ids)), y)
        loss.backward()
        table.weight.grad /= world
        dense.step()
        sparse.step()
        if rank == 0 and step % 4 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    sizes = [None] * world
    dist.all_gather_object(sizes, tuple(table.weight.shape))
    assert sum(s[0] for s in sizes) == VOCAB
    torch_flat = nn.utils.parameters_to_vector(tower.parameters()).detach()
    top = torch_flat.clone()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    assert torch.equal(top, torch_flat)
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()


main()
