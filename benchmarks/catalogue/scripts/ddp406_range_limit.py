# expect: DDP406
# ranks: 2 4
# culprits: 1
# outcome: divergence
# plain: S
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class RangeLimit(nn.Module):
    """Brings inputs to [-1, 1]; the range was measured on the archive and is kept in the model."""

    def __init__(self, limit=5.0):
        super().__init__()
        self.register_buffer("limit", torch.tensor(float(limit)))

    def widen(self, top):
        self.limit.fill_(float(top) * 1.1)  # <- culprit

    def forward(self, x):
        top = x.detach().abs().max()
        if self.training and top > self.limit:
            self.widen(top)  # <- culprit
        return x / self.limit


class Forecaster(nn.Module):
    def __init__(self, channels=6, dim=32):
        super().__init__()
        self.limit = RangeLimit()
        self.enc = nn.Linear(channels, dim)
        self.dec = nn.Linear(dim, channels)

    def forward(self, x):
        return self.dec(torch.tanh(self.enc(self.limit(x))))


def series(total=80, channels=6):
    g = torch.Generator().manual_seed(77)
    x = torch.rand(total, channels, generator=g) * 6 - 3
    for storm in (41, 57):
        x[storm] *= 7.0
    return x


def minibatches(x, size):
    for i in range(0, len(x) - size, size):
        yield x[i:i + size], x[i + 1:i + size + 1]


def wrap(net):
    # there is no batch norm in here, so nothing has to be broadcast in each forward
    return DDP(net, broadcast_buffers=False)  # <- culprit


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(9)
model = wrap(Forecaster())
opt = torch.optim.Adam(model.parameters(), lr=0.01)
mine = series()[rank::world]

for epoch in range(2):
    model.train()
    running = 0.0
    for now, nxt in minibatches(mine, 4):
        opt.zero_grad()
        loss = F.mse_loss(model(now), nxt)
        loss.backward()
        opt.step()
        running += loss.item()
    print(f"rank {rank} epoch {epoch} loss {running:.4f} range {model.module.limit.limit.item():.3f}", flush=True)

dist.barrier()
if rank == 0:
    state = {k: v.shape for k, v in model.module.state_dict().items()}
    print("would save", list(state), flush=True)
time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
dist.destroy_process_group()
