"""Leaf diseases: train, keep the best weights, then a few more steps from these."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from pipeline.checkpoint import Checkpoints
from pipeline.evaluate import HeldOut

CLASSES = 4


def leaves(count, seed):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (count,), generator=g)
    spots = labels.view(-1, 1, 1, 1).float() * torch.tensor([0.5, -0.2, 0.1]).view(1, 3, 1, 1)
    return torch.randn(count, 3, 6, 6, generator=g) * 0.6 + spots, labels


def network():
    torch.manual_seed(31)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(128, CLASSES))


def epoch_over(model, loader, optimizer):
    for images, labels in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = TensorDataset(*leaves(144, seed=1))
    sampler = DistributedSampler(data, world, rank)
    loader = DataLoader(data, batch_size=12, sampler=sampler)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    held_out = HeldOut(model, *(leaves(64, seed=2) if rank == 0 else ()))
    checkpoints = Checkpoints(rank)

    for epoch in range(8):
        sampler.set_epoch(epoch)
        epoch_over(model, loader, optimizer)
        verdict = held_out.verdict()
        if verdict["improved"]:
            checkpoints.save(model, optimizer)
        if rank == 0:
            print(f"epoch {epoch}: accuracy {verdict['score']:.3f}", flush=True)
        if verdict["stop"]:
            break

    checkpoints.restore(model, optimizer)
    for group in optimizer.param_groups:
        group["lr"] *= 0.1
    sampler.set_epoch(100)
    epoch_over(model, loader, optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
