# expect: DDP407
# ranks: 2 4
# culprits: range(n)
# outcome: divergence
# plain: S
"""The module has a training_step of its own, in the style of the known frameworks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class LitClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(7, 14), nn.GELU(), nn.Linear(14, 3))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)  # <- culprit

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Trainer:
    def __init__(self, module):
        self.model = DDP(module)
        self.optimizer = self.model.module.configure_optimizers()

    def fit(self, loader, sampler, epochs=2):
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            for batch in loader:
                loss = self.model.module.training_step(batch)  # <- culprit
                self.optimizer.zero_grad()
                loss.backward()  # <- culprit
                self.optimizer.step()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(96, 7), torch.randint(0, 3, (96,)))
    sampler = DistributedSampler(data)
    Trainer(LitClassifier()).fit(DataLoader(data, batch_size=8, sampler=sampler), sampler)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
