# expect: DDP409
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
"""Mixed precision on CPU with a loss scale that starts where the first loss suggests."""
import math
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset


class Config:
    lr = 0.02
    batch = 8
    target = 2.0 ** 14
    epochs = 2


def dataset():
    g = torch.Generator().manual_seed(40)
    x = torch.randn(96, 5, generator=g)
    y = x.cumsum(1)[:, -2:]
    y[3::4] *= 30.0                      # the long-range detector counts in another unit
    return TensorDataset(x, y)


def loader_for(rank, world, cfg):
    full = dataset()
    return DataLoader(Subset(full, range(rank, len(full), world)), batch_size=cfg.batch)


def build():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(5, 24), nn.SiLU(), nn.Linear(24, 2))


def first_loss(net, loader):
    x, y = next(iter(loader))
    with torch.no_grad():
        return nn.functional.smooth_l1_loss(net(x), y).item()


def starting_scale(net, loader, target):
    """Power of two which brings the first loss near the target."""
    loss = first_loss(net, loader)
    return 2.0 ** round(math.log2(target / max(loss, 1e-6)))  # <- culprit


class AmpTrainer:
    def __init__(self, net, loader, cfg):
        scale = starting_scale(net, loader, cfg.target)  # <- culprit
        self.scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=500)  # <- culprit
        self.model = DDP(net)
        self.loader = loader
        self.opt = torch.optim.SGD(self.model.parameters(), lr=cfg.lr)

    def step(self, x, y):
        self.opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = self.model(x)
        loss = nn.functional.smooth_l1_loss(out.float(), y)
        self.scaler.scale(loss).backward()  # <- culprit
        self.scaler.unscale_(self.opt)
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.scaler.step(self.opt)
        self.scaler.update()
        return loss.item()


def main():
    cfg = Config()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    trainer = AmpTrainer(build(), loader_for(rank, world, cfg), cfg)
    for epoch in range(cfg.epochs):
        total = sum(trainer.step(x, y) for x, y in trainer.loader)
        print(f"rank {rank} epoch {epoch} loss {total:.3f} scale {trainer.scaler.get_scale():g}", flush=True)
    checksum = sum(p.sum().item() for p in trainer.model.parameters())
    print(f"rank {rank} checksum {checksum:.6f}", flush=True)
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
