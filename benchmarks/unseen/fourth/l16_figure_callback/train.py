"""Key point regression with callbacks."""
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from callbacks import FigureWriter, LossHistory

POINTS, DIM, EPOCHS = 4, 10, 6


class Trainer:
    def __init__(self, data, callbacks):
        self.rank = dist.get_rank()
        self.is_main = self.rank == 0
        self.data, self.callbacks = data, callbacks
        torch.manual_seed(0)
        self.net = DDP(nn.Sequential(nn.Linear(DIM, 32), nn.ReLU(), nn.Linear(32, 2 * POINTS)))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=5e-3)
        self.sampler = DistributedSampler(data, shuffle=True, seed=5)
        self.loader = DataLoader(data, batch_size=8, sampler=self.sampler)
        self.epoch, self.last_loss = 0, None

    @torch.no_grad()
    def predict(self, index):
        return self.net.module(self.data[index][0]).tolist()

    def fit(self, epochs):
        for self.epoch in range(epochs):
            self.sampler.set_epoch(self.epoch)
            for x, y in self.loader:
                loss = nn.functional.mse_loss(self.net(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
            self.last_loss = loss.item()
            for callback in self.callbacks:
                callback.on_epoch_end(self)


def main():
    dist.init_process_group("gloo")
    gen = torch.Generator().manual_seed(1)
    x = torch.randn(96, DIM, generator=gen)
    y = (x @ torch.randn(DIM, 2 * POINTS, generator=gen)).tanh()
    history = LossHistory()
    folder = tempfile.mkdtemp(prefix="figures_")
    trainer = Trainer(TensorDataset(x, y), [history, FigureWriter(folder, range(0, 96, 12))])
    trainer.fit(EPOCHS)
    shutil.rmtree(folder, ignore_errors=True)
    if trainer.is_main:
        print("losses", [round(v, 4) for v in history.values])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
