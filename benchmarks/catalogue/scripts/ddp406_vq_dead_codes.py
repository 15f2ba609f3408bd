# expect: DDP406
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

CENTRES = torch.tensor([[4.0, 4.0], [-4.0, 4.0], [4.0, -4.0], [-4.0, -4.0]])


class Codebook(nn.Module):
    """EMA codebook (no gradients): statistics are summed over the ranks, dead codes are revived."""

    def __init__(self, decay=0.9):
        super().__init__()
        self.register_buffer("codes", CENTRES + 0.5)
        self.decay = decay
        self.recent = None
        self.revived = 0

    @torch.no_grad()
    def quantise(self, x):
        index = torch.cdist(x, self.codes).argmin(1)
        onehot = F.one_hot(index, len(self.codes)).float()
        return index, onehot

    @torch.no_grad()
    def ema_update(self, x, onehot):
        count, total = onehot.sum(0), onehot.T @ x
        self.recent = count if self.recent is None else 0.5 * self.recent + count
        dist.all_reduce(count)
        dist.all_reduce(total)
        seen = count > 0
        mean = total[seen] / count[seen].unsqueeze(1)
        self.codes[seen] = self.decay * self.codes[seen] + (1 - self.decay) * mean

    @torch.no_grad()
    def revive(self, x, threshold=0.1):
        dead = self.recent < threshold  # <- culprit
        if dead.any():  # <- culprit
            self.codes[dead] = x[:int(dead.sum())]  # <- culprit
            self.recent[dead] = 1.0
            self.revived += int(dead.sum())

    def forward(self, x):
        index, onehot = self.quantise(x)
        if self.training:
            self.ema_update(x, onehot)
        return self.codes[index]


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.vq = Codebook()
        self.decoder = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x):
        return self.decoder(self.vq(x))


def patches(rank, world):
    gen = torch.Generator().manual_seed(90 + rank)
    kinds = torch.arange(64) % (2 if rank == world - 1 else 4)
    return CENTRES[kinds] + 0.2 * torch.randn(64, 2, generator=gen)


def train(model, data, steps_per_revival=2):
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step, x in enumerate(data.split(8)):
        loss = F.mse_loss(model(x), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (step + 1) % steps_per_revival == 0:
            model.module.vq.revive(x)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    # the codebook keeps itself in step, broadcasting it in every forward would be wasted
    model = DistributedDataParallel(AutoEncoder(), broadcast_buffers=False)
    train(model, patches(dist.get_rank(), dist.get_world_size()))
    vq = model.module.vq
    print(f"[{dist.get_rank()}] revived {vq.revived}, codes {vq.codes.flatten().tolist()}", flush=True)
    time.sleep(0.3)  # let the last log lines out
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
