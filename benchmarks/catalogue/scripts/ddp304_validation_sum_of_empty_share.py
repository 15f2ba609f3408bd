# expect: DDP304
# ranks: 2
# culprits: [n-1]
# outcome: crash
# plain: A
# Re-enacts: forum question, the summed loss stays a Python int where the share of the validation set is empty.
import torch
import torch.nn.functional as F
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def shard(items, rank, world):
    per_rank = -(-len(items) // max(1, world - 1))
    return items[rank * per_rank:(rank + 1) * per_rank]


def validation_loss(model, batches):
    total = 0
    model.eval()
    with torch.no_grad():
        for x, y in batches:
            total += F.cross_entropy(model.module(x), y).item()
    model.train()
    total = torch.tensor(total)  # <- culprit
    dist.all_reduce(total)  # <- culprit
    return total.item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    val = [(torch.randn(4, 6), torch.randint(0, 2, (4,))) for _ in range(3)]
    model = DDP(nn.Linear(6, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(rank)
    for epoch in range(2):
        for _ in range(3):
            x, y = torch.randn(4, 6, generator=g), torch.randint(0, 2, (4,), generator=g)
            opt.zero_grad()
            F.cross_entropy(model(x), y).backward()
            opt.step()
        v = validation_loss(model, shard(val, rank, world))  # <- culprit
        if rank == 0:
            print(f"epoch {epoch} validation {v:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
