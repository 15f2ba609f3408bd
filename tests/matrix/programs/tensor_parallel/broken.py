# command: torchrun --standalone --nproc_per_node=2 broken.py
# plain: hang
# outcome: hang
# expect: DDP605
# sides: 0 | 1
# remedy: full_tensor()
"""As the tensor parallel example: DTensor, with a full weight that rank 0 alone asks for."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.in_proj, self.relu, self.out_proj = nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 5)

    def forward(self, x):
        return self.out_proj(self.relu(self.in_proj(x)))


def main():
    mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
    torch.manual_seed(0)
    model = parallelize_module(ToyModel(), mesh, {"in_proj": ColwiseParallel(), "out_proj": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=False)
    for step in range(5):
        torch.manual_seed(step)  # the same batch on all ranks of the mesh
        loss = model(torch.rand(20, 10)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.6f}")
    if dist.get_rank() == 0:
        norm = model.in_proj.weight.full_tensor().norm().item()  # <- culprit
        print(f"norm of the weights: {norm:.6f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
