import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from loading import make_loader


class TwoTower(nn.Module):
    def __init__(self, dim=14, out=16):
        super().__init__()
        self.q = nn.Linear(dim, out)
        self.d = nn.Linear(dim, out)

    def forward(self, q, d):
        return torch.sigmoid((self.q(q) * self.d(d)).sum(-1))


def begin_epoch(loader, epoch):
    sampler = getattr(loader, "sampler", None)
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)


def train(epochs=3):
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = make_loader(rank, world)
    torch.manual_seed(0)
    model = DDP(TwoTower())
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(epochs):
        begin_epoch(loader, epoch)
        total = torch.zeros(())
        for q, d, rel in loader:
            loss = nn.functional.binary_cross_entropy(model(q, d), rel)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.detach()
        dist.all_reduce(total)
        if not rank:
            print(f"epoch {epoch}: {total.item() / world / len(loader):.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()
