# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
import os
import tempfile
from contextlib import suppress
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Spectra(Dataset):
    """Noise is drawn anew in each access, from the generator of the process."""

    def __init__(self, n, seed, train):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 9, generator=g)
        self.y = (self.x[:, :3].sum(1) > 0).float()
        self.train = train

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i]
        if self.train:
            x = x + 0.05 * torch.randn(9)
        return x, self.y[i]


class Patience:
    def __init__(self, limit):
        self.limit, self.best, self.bad = limit, float("inf"), 0

    def stop(self, value):
        self.bad = 0 if value < self.best * 0.9 else self.bad + 1
        self.best = min(self.best, value)
        return self.bad >= self.limit


def mean_over_ranks(total, count):
    t = torch.tensor([total, count], dtype=torch.float64)
    dist.all_reduce(t)
    return (t[0] / t[1]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(9, 32), nn.Dropout(0.1), nn.ReLU(), nn.Linear(32, 8), nn.Linear(8, 1)))
    opt = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.02)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 12)
    torch.manual_seed(500 + rank)
    train, held = Spectra(75, 1, True), Spectra(37, 2, False)
    sampler = DistributedSampler(train, drop_last=True, seed=9)
    loader = DataLoader(train, batch_size=6, sampler=sampler, drop_last=True)
    mine = range(rank, len(held), world)                # not the same number everywhere
    patience = Patience(2)
    loss_fn = nn.BCEWithLogitsLoss()
    for epoch in range(12):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            opt.zero_grad()
            loss_fn(model(x).squeeze(1), y).backward()
            opt.step()
        sched.step()
        model.eval()
        with torch.no_grad():
            rows = [loss_fn(model.module(held[i][0]), held[i][1].reshape(1)).item() for i in mine]
        score = mean_over_ranks(sum(rows), len(rows))
        if rank == 0:
            print(f"epoch {epoch}: {score:.4f}", flush=True)
        if patience.stop(score):
            break
    opt.consolidate_state_dict(to=0)
    if rank == 0:
        path = os.path.join(tempfile.mkdtemp(), "last.pt")
        torch.save({"model": model.module.state_dict(), "opt": opt.state_dict()}, path)
        with suppress(OSError):
            os.remove(path)
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    ref = flat.clone()
    dist.broadcast(ref, 0)
    assert torch.equal(ref, flat)
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()


main()
