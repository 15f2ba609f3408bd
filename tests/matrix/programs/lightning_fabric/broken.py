# command: fabric run --accelerator=cpu --devices=2 --strategy=ddp broken.py
# plain: hang
# outcome: hang
# expect: DDP301
# sides: 0 | 1
# remedy: fabric.all_reduce()
"""Lightning Fabric with its own launcher: the loss of all ranks is averaged where it is printed: on rank 0."""

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    fabric = Fabric()
    fabric.seed_everything(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.05))
    x = torch.randn(64, 8)
    loader = fabric.setup_dataloaders(DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8))
    for epoch in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            fabric.backward(loss)
            optimizer.step()
        if fabric.is_global_zero:
            mean = fabric.all_reduce(loss.detach())  # <- culprit
            print(f"epoch {epoch}: loss {mean.item():.6f}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
