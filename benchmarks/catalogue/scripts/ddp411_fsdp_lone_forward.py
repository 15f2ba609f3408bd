# expect: DDP411
# ranks: 2 4
# culprits: 0
# outcome: hang
# plain: T
"""Sharded training (FSDP2). Rank 0 looks at one prediction before each epoch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Mlp(nn.Module):
    def __init__(self, dim=8, depth=3):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))  # <- culprit
        return self.out(x)


def shard(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def peek(model):
    with torch.no_grad():
        return model(torch.ones(1, 8)).item()  # <- culprit


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = shard(Mlp())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    torch.manual_seed(dist.get_rank())
    for epoch in range(3):
        if epoch > 0 and dist.get_rank() == 0:  # <- culprit
            print(f"epoch {epoch}: {peek(model):.4f}")  # <- culprit
        for _ in range(3):
            x = torch.randn(4, 8)
            loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
