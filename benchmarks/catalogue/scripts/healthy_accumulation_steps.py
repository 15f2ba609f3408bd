# expect: none
# ranks: 2
# culprits: any
# outcome: ok
# plain: S
# Re-enacts: the usual gradient accumulation loop with no_sync, the same on every process, with a shorter last window.
import contextlib
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def loop(model, loader, opt, accumulate):
    opt.zero_grad()
    for i, (x, y) in enumerate(loader):
        last = (i + 1) % accumulate == 0 or i + 1 == len(loader)
        with contextlib.nullcontext() if last else model.no_sync():
            loss = nn.functional.cross_entropy(model(x), y) / accumulate
            loss.backward()
        if last:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
    return loss.item() * accumulate


def main():
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    g = torch.Generator().manual_seed(0)
    x = torch.randn(20 * world, 8, generator=g)
    data = TensorDataset(x, (x.sum(1) > 0).long())
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        value = loop(model, loader, opt, accumulate=2)
        if dist.get_rank() == 0:
            print(epoch, round(value, 4))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
