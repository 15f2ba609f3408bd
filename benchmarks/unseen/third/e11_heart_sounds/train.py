"""Murmur detection, FSDP2, with an exponential average of the local shards."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from guard import BatchGuard
from recordings import Recordings


class Detector(nn.Module):
    def __init__(self, length=64, width=32):
        super().__init__()
        self.stem = nn.Linear(length, width)
        self.mid = nn.Sequential(nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.head = nn.Linear(width, 2)

    def forward(self, wave):
        return self.head(self.mid(self.stem(wave)))


@torch.no_grad()
def update_average(average, model, decay=0.9):
    for kept, p in zip(average, model.parameters()):
        kept.lerp_(p.to_local(), 1 - decay)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(6)
    mesh = init_device_mesh("cpu", (world,))
    model = Detector()
    fully_shard(model.mid, mesh=mesh)
    fully_shard(model, mesh=mesh)
    average = [p.to_local().detach().clone() for p in model.parameters()]
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)

    data = Recordings()
    sampler = DistributedSampler(data, seed=2, drop_last=True)
    loader = DataLoader(data, batch_size=6, sampler=sampler, drop_last=True)
    guard = BatchGuard()
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for wave, murmur in loader:
            if guard.rejects(wave):
                continue
            loss = F.cross_entropy(model(wave), murmur)
            loss.backward()
            opt.step()
            opt.zero_grad()
            update_average(average, model)
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"epoch {epoch}: loss {mean / world:.4f}, {guard.skipped} batches skipped", flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
