# expect: DDP605
# also: DDP301
# ranks: 2 4
# culprits: 0
# outcome: hang
# plain: T
"""A sharded model; the first rank puts the full tensors together and writes them."""

import io

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


def build(mesh, width=16, depth=2):
    model = nn.Sequential(*[Block(width) for _ in range(depth)])
    for block in model:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def save(model, file):
    if dist.get_rank() == 0:  # <- culprit
        state = {name: tensor.full_tensor() for name, tensor in model.state_dict().items()}  # <- culprit
        torch.save(state, file)
        print("saved", len(state), "tensors", flush=True)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = build(init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    g = torch.Generator().manual_seed(rank)
    for _ in range(3):
        x = torch.randn(8, 16, generator=g)
        loss = nn.functional.mse_loss(model(x), -x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    save(model, io.BytesIO())  # <- culprit
    dist.barrier()  # <- culprit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
