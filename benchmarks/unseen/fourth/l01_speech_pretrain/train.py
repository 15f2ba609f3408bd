"""Masked-frame pretraining of a small acoustic encoder."""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

FRAMES, DIM, CLUSTERS = 20, 12, 8
EPOCHS, STEPS, BATCH = 2, 8, 4


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(DIM, 32)
        self.mid = nn.Linear(32, 32)
        self.out = nn.Linear(32, CLUSTERS)

    def forward(self, x):
        h = torch.tanh(self.inp(x))
        h = h + torch.tanh(self.mid(h))
        return self.out(h)


class Utterances:
    """Synthetic features with cluster targets and a span mask."""

    def __init__(self, rank, world):
        self.rank, self.world = rank, world

    def span(self, epoch, step):
        n = (epoch * STEPS + step) * 12 + self.rank
        return 0 if n % 64 == 61 else 3 + n % 5

    def batch(self, epoch, step):
        gen = torch.Generator().manual_seed(1000 * epoch + 10 * step + self.rank)
        x = torch.randn(BATCH, FRAMES, DIM, generator=gen)
        y = torch.randint(0, CLUSTERS, (BATCH, FRAMES), generator=gen)
        mask = torch.zeros(BATCH, FRAMES, dtype=torch.bool)
        mask[:, : self.span(epoch, step)] = True
        return x, y, mask


class Pretrainer:
    def __init__(self, rank, world):
        torch.manual_seed(0)
        self.rank, self.world = rank, world
        self.net = DDP(Encoder())
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.data = Utterances(rank, world)

    def _step(self, batch):
        x, y, mask = batch
        logits = self.net(x)
        loss = F.cross_entropy(logits[mask], y[mask])
        return loss, mask.sum().float().reshape(1)

    def training_step(self, batch):
        self.opt.zero_grad()
        loss, num_frame = self._step(batch)
        if torch.isinf(loss) or torch.isnan(loss):
            self.opt.zero_grad()
            return None
        frames = [torch.zeros(1) for _ in range(self.world)]
        dist.all_gather(frames, num_frame)
        total = torch.cat(frames).sum()
        (loss * num_frame.item() * self.world / total).backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 10.0)
        self.opt.step()
        return loss.item()

    def run_epoch(self, epoch):
        stats = torch.zeros(2)
        for step in range(STEPS):
            value = self.training_step(self.data.batch(epoch, step))
            if value is not None:
                stats += torch.tensor([value, 1.0])
        dist.all_reduce(stats)
        return (stats[0] / stats[1]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    trainer = Pretrainer(rank, world)
    for epoch in range(EPOCHS):
        mean = trainer.run_epoch(epoch)
        if rank == 0:
            print(f"epoch {epoch} loss {mean:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
