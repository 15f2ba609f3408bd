# expect: DDP304
# ranks: 2 4
# culprits: n-1
# outcome: hang
# plain: A
"""Average the validation score; a process without samples contributes 0."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def local_score(scores):
    return sum(scores) / len(scores) if scores else 0  # <- culprit


def global_score(scores):
    value = torch.tensor(local_score(scores))  # <- culprit
    dist.all_reduce(value)  # <- culprit
    return value.item() / dist.get_world_size()


def validate(net, batches):
    with torch.no_grad():
        return [float((net(x).argmax(1) == y).float().mean()) for x, y in batches]


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DDP(nn.Linear(6, 3))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    held_out = [(torch.randn(4, 6), torch.randint(0, 3, (4,))) for _ in range(0 if rank == size - 1 else 3)]
    for epoch in range(2):
        for _ in range(3):
            opt.zero_grad()
            nn.functional.cross_entropy(model(torch.randn(4, 6)), torch.randint(0, 3, (4,))).backward()
            opt.step()
        score = global_score(validate(model.module, held_out))
        if rank == 0:
            print(f"epoch {epoch}: {score:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
