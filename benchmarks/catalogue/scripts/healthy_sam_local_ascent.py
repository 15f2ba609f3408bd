# expect: none
# ranks: 2 4
# culprits: []
# outcome: ok
# plain: S
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class SAM:
    """Sharpness-aware minimisation as in the paper: every worker climbs along the gradient of its own shard
    (no communication), the gradients at the climbed points are averaged, the step is taken from the old point."""

    def __init__(self, params, base, rho=0.05):
        self.params, self.base, self.rho = list(params), base, rho

    def grad_norm(self):
        return torch.stack([p.grad.norm() for p in self.params]).norm()

    @contextmanager
    def climbed(self):
        with torch.no_grad():
            home = [p.detach().clone() for p in self.params]
            scale = self.rho / (self.grad_norm() + 1e-12)
            for p in self.params:
                p.add_(p.grad, alpha=scale.item())
            self.base.zero_grad()
        yield
        with torch.no_grad():
            for p, h in zip(self.params, home):
                p.copy_(h)


def two_moons(n, gen):
    t = torch.rand(n, generator=gen) * torch.pi
    lab = torch.randint(0, 2, (n,), generator=gen)
    x = torch.stack([t.cos() + lab, t.sin() * (1 - 2 * lab) + 0.5 * lab], 1)
    return x + 0.1 * torch.randn(n, 2, generator=gen), lab


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = TensorDataset(*two_moons(128, torch.Generator().manual_seed(0)))
    sampler = DistributedSampler(data, seed=17)
    loader = DataLoader(data, batch_size=8, sampler=sampler)

    torch.manual_seed(3)
    ddp = DDP(nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Dropout(0.05), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)))
    base = torch.optim.SGD(ddp.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-4)
    sam = SAM(ddp.parameters(), base)
    torch.manual_seed(300 + rank)
    criterion = nn.CrossEntropyLoss()
    means = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for x, y in loader:
            base.zero_grad()
            with ddp.no_sync():
                loss = criterion(ddp(x), y)
                loss.backward()
            with sam.climbed():
                criterion(ddp(x), y).backward()
            base.step()
            total += loss.detach()
        dist.all_reduce(total)
        means.append(total.item() / world / len(loader))
    for p in ddp.parameters():
        copies = [torch.empty_like(p) for _ in range(world)]
        dist.all_gather(copies, p.detach())
        assert all(torch.equal(c, copies[0]) for c in copies)
    assert means[-1] < means[0]
    if rank == 0:
        print("mean loss per epoch", [round(m, 3) for m in means])
    dist.barrier()
    time.sleep(0.3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
