"""Blood cell classification; previews are drawn on the node that has the spare cores."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from hooks.preview import ConfusionPreview
from hooks.runner import HookRunner

CLASSES = 3


def cells(count, seed):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (count,), generator=g)
    images = torch.randn(count, 1, 8, 8, generator=g) * 0.5
    return images + labels.view(-1, 1, 1, 1).float() * 0.7, labels


def network():
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.GroupNorm(2, 6), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, CLASSES),
    )


def hooks_for(rank, world, model):
    runner = HookRunner()
    spare = {2: 1, 3: 1, 4: 2}.get(world, world - 1)
    if rank == spare:
        images, labels = cells(30, seed=77)
        runner.every(8, ConfusionPreview(model, images, labels, CLASSES))
    return runner


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = TensorDataset(*cells(192, seed=1))
    sampler = DistributedSampler(data, world, rank, shuffle=True)
    loader = DataLoader(data, batch_size=12, sampler=sampler)
    mesh = init_device_mesh("cpu", (world,))
    model = fully_shard(network(), mesh=mesh, reshard_after_forward=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    runner = hooks_for(rank, world, model)

    for epoch in range(4):
        sampler.set_epoch(epoch)
        runner.state.epoch = epoch
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            runner.tick(loss.item())
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
