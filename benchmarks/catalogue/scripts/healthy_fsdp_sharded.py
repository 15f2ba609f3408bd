# expect: none
# ranks: 2 4
# outcome: ok
# plain: S
"""Fully sharded (FSDP2): shards differ between the ranks, as they must; evaluation on all ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 3 * dim), nn.GELU(), nn.Linear(3 * dim, dim))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


def build(dim=8, depth=3):
    torch.manual_seed(0)
    model = nn.Sequential(*[Block(dim) for _ in range(depth)], nn.Linear(dim, 3))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model[:-1]:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


@torch.no_grad()
def accuracy(model, x, y):
    right = (model(x).argmax(1) == y).float().mean()
    dist.all_reduce(right)
    return right.item() / dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(dist.get_rank())
    for _ in range(10):
        x = torch.randn(8, 8)
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    x = torch.randn(32, 8)
    score = accuracy(model, x, x[:, :3].argmax(1))
    if dist.get_rank() == 0:
        print(f"accuracy {score:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
