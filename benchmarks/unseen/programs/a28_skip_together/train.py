import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from robust import FlakyStorage, finite_everywhere, with_retries


class Autoencoder(nn.Module):
    def __init__(self, dim=9, code=3):
        super().__init__()
        self.down = nn.Linear(dim, code)
        self.up = nn.Linear(code, dim)

    def forward(self, x):
        return self.up(torch.tanh(self.down(x)))


def corrupt(x, key):
    if key % 11 == 4:
        x = x.clone()
        x[3, 2] = math.nan
    return x


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Autoencoder())
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    storage = FlakyStorage(rank)
    skipped = 0
    for step in range(20):
        key = step * world + rank
        x = corrupt(with_retries(lambda: storage.read(key)), key)
        loss = nn.functional.mse_loss(model(x), x)
        if not finite_everywhere(loss):
            skipped += 1
            continue
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"rank {rank}: skipped {skipped} batches, final loss {loss.item():.4f}", flush=True)
    check = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.isfinite(check).all()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
