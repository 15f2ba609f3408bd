# expect: DDP413
# ranks: 2 4
# culprits: 0
# outcome: crash
# plain: E
"""Rank 0 saves with the network's own method, the others wait for the file."""

import json
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Pretrained(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.net = nn.Sequential(nn.Linear(config["dim"], 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x):
        return self.net(x)

    def save_pretrained(self, folder):
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(self.config, file)
        torch.save(self.state_dict(), os.path.join(folder, "weights.pt"))


class Trainer:
    def __init__(self, folder):
        self.rank, self.folder = dist.get_rank(), folder
        torch.manual_seed(0)
        self.model = DDP(Pretrained({"dim": 6}))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)

    def save(self):
        if self.rank == 0:
            self.model.save_pretrained(self.folder)  # <- culprit
        dist.barrier()

    def fit(self, epochs):
        torch.manual_seed(self.rank)
        for _ in range(epochs):
            for _ in range(3):
                x = torch.randn(8, 6)
                loss = (self.model(x) - x.norm(dim=1, keepdim=True)).pow(2).mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            self.save()


dist.init_process_group("gloo")
with tempfile.TemporaryDirectory() as folder:
    Trainer(folder).fit(2)
dist.destroy_process_group()
