# expect: DDP308
# also: DDP301
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: R
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


class Callback:
    def on_validation_end(self, trainer):
        pass


class EarlyStopping(Callback):
    def __init__(self, monitor="val_loss", patience=2, min_delta=1e-3):
        self.monitor, self.patience, self.min_delta = monitor, patience, min_delta
        self.best, self.wait = float("inf"), 0

    def on_validation_end(self, trainer):
        current = trainer.metrics[self.monitor]
        if current < self.best - self.min_delta:
            self.best, self.wait = current, 0
            return
        self.wait += 1
        if self.wait >= self.patience:
            trainer.should_stop = True  # <- culprit


class Progress(Callback):
    def on_validation_end(self, trainer):
        if trainer.rank == 0:
            print(f"epoch {trainer.epoch}: val_loss {trainer.metrics['val_loss']:.4f}", flush=True)


class Regressor(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(6, 1)

    def forward(self, x):
        return self.net(x).squeeze(-1)


class SiteData:
    """One hospital per rank; the last one labels in the opposite direction."""

    def __init__(self, rank, world):
        gen = torch.Generator().manual_seed(rank)
        w = torch.tensor([1.0, -1.0, 2.0, 0.5, 0.0, 1.5])
        x = torch.randn(48, 6, generator=gen)
        y = x @ w
        vx = torch.randn(16, 6, generator=gen)
        vy = vx @ (w if rank < world - 1 else -w)
        self.train, self.val = TensorDataset(x, y), TensorDataset(vx, vy)


class Trainer:
    def __init__(self, max_epochs, callbacks):
        self.max_epochs, self.callbacks = max_epochs, callbacks
        self.metrics, self.should_stop, self.epoch = {}, False, 0
        self.rank = dist.get_rank()

    def fit(self, model, data):
        self.model = DistributedDataParallel(model)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.05)
        for self.epoch in range(self.max_epochs):
            self._train_epoch(DataLoader(data.train, batch_size=8, shuffle=True))
            self._validate(DataLoader(data.val, batch_size=8))
            if self.should_stop:  # <- culprit
                break  # <- culprit

    def _train_epoch(self, loader):
        for x, y in loader:
            self.opt.zero_grad()
            F.mse_loss(self.model(x), y).backward()
            self.opt.step()

    @torch.no_grad()
    def _validate(self, loader):
        losses = [F.mse_loss(self.model.module(x), y) for x, y in loader]
        self.metrics["val_loss"] = torch.stack(losses).mean().item()
        for cb in self.callbacks:
            cb.on_validation_end(self)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = Regressor()
    trainer = Trainer(max_epochs=6, callbacks=[EarlyStopping(), Progress()])
    trainer.fit(model, SiteData(dist.get_rank(), dist.get_world_size()))
    dist.destroy_process_group()
