# command: torchrun --standalone --nproc_per_node=2 broken.py
# plain: 1
# outcome: crash or hang
# expect: DDP301
# culprits: 1
# remedy: accelerator.wait_for_everyone()
"""Accelerate: the usual loop, and a wait for everyone on the main process only."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    accelerator = Accelerator(cpu=True)
    set_seed(1)
    x = torch.randn(64, 8)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
        losses = accelerator.gather_for_metrics(loss.detach())
        accelerator.print(f"epoch {epoch}: loss {losses.mean().item():.6f}")
    if accelerator.is_main_process:
        accelerator.wait_for_everyone()  # <- culprit
        accelerator.save(accelerator.unwrap_model(model).state_dict(), "model.safetensors")
    accelerator.end_training()


if __name__ == "__main__":
    main()
