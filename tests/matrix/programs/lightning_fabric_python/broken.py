# command: python broken.py
# plain: 0
# outcome: ok
# expect: DDP417
# culprits: 0 1
# remedy: fabric.setup(model, optimizer)
"""Lightning Fabric, launched by the script itself; setup() of the model is forgotten."""

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    fabric.seed_everything(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(64, 8)
    loader = fabric.setup_dataloaders(DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8))
    for epoch in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()  # <- culprit
        mean = fabric.all_reduce(loss.detach())
        if fabric.is_global_zero:
            print(f"epoch {epoch}: loss {mean.item():.6f}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
