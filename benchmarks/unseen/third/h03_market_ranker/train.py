"""Click ranking over several markets; every process serves the rows of one market."""
import os
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn

from markets import MARKETS, click_loader, export_tables, warm_start

STEPS = 40


class Ranker(nn.Module):
    def __init__(self, n_items=200, dim=16):
        super().__init__()
        self.items = nn.Embedding(n_items, dim)
        self.users = nn.Embedding(100, dim)
        self.mlp = nn.Sequential(nn.Linear(2 * dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, users, items):
        pair = torch.cat([self.users(users), self.items(items)], dim=-1)
        return self.mlp(pair).squeeze(-1)


def artifact_folder(accelerator):
    folder = Path(tempfile.gettempdir()) / f"ranker_{os.environ['MASTER_PORT']}"
    if accelerator.is_main_process:
        export_tables(folder)
    accelerator.wait_for_everyone()
    return folder


def main():
    set_seed(5)
    accelerator = Accelerator(cpu=True)
    market = MARKETS[accelerator.process_index]
    folder = artifact_folder(accelerator)

    model = Ranker()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    warm_start(accelerator.unwrap_model(model), folder, market)

    criterion = nn.BCEWithLogitsLoss()
    batches = click_loader(market, steps=STEPS)
    for step, (users, items, clicks) in enumerate(batches, start=1):
        loss = criterion(model(users, items), clicks)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            mean = accelerator.reduce(loss.detach(), reduction="mean")
            accelerator.print(f"step {step} logloss {mean.item():.4f}")

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        torch.save(accelerator.unwrap_model(model).state_dict(), folder / "ranker.pt")
    accelerator.end_training()


if __name__ == "__main__":
    main()
