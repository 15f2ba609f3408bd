"""Ranks that train without a wrapper, by mistake or on purpose."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(model, rank, lr=0.01, between=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(6):
        x = torch.randn(8, 16, generator=generator)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if between is not None:
            between(model)
        optimizer.step()  # culprit: forgotten
        dist.all_reduce(loss.detach())


def forgotten(model, rank):
    train(model, rank)


def averaged(model, rank):
    train(model, rank, between=mean)


def mean(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)  # culprit: clips_its_own
        parameter.grad /= dist.get_world_size()


def scale(model, factor):
    for parameter in model.parameters():
        parameter.grad *= factor


def norm_of(model):
    return torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm().item()


def clips_its_own(model, rank):
    """By hand, before the mean is taken."""

    def between(model):
        scale(model, min(1.0, 0.01 / norm_of(model)))
        mean(model)

    train(model, rank, between=between)


def clips_the_mean(model, rank):
    def between(model):
        mean(model)
        scale(model, min(1.0, 0.01 / norm_of(model)))

    train(model, rank, between=between)


def weighs(model, rank):
    """Ranks whose batches are of different sizes."""

    def between(model):
        scale(model, 0.2 + 0.1 * rank)
        mean(model)

    train(model, rank, between=between)


def search(model, rank):
    train(model, rank, lr=0.01 * (1 + rank))


def actors(_, rank):
    model = nn.Linear(16, 8 + rank)
    train(model, rank)


def beside(model, rank, average=False):
    """A learned temperature that is no part of the wrapped model."""
    wrapped, temperature = DistributedDataParallel(model), nn.Parameter(torch.ones(()))
    own = torch.optim.Adam([temperature], lr=0.01)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(6):
        loss = (wrapped(torch.randn(8, 16, generator=generator)) / temperature).square().mean()
        for one in (optimizer, own):
            one.zero_grad()
        loss.backward()
        if average:
            dist.all_reduce(temperature.grad)
            temperature.grad /= dist.get_world_size()
        optimizer.step()
        own.step()  # culprit: beside


def beside_averaged(model, rank):
    beside(model, rank, average=True)


def misled(model, rank):
    """Each batch is changed by steps of an optimizer that lives as long as the batch."""
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(6):
        x, change = torch.randn(8, 16, generator=generator), torch.zeros(8, 16, requires_grad=True)
        attack = torch.optim.SGD([change], lr=0.1)
        for _ in range(2):
            attack.zero_grad()
            (-wrapped.module(x + change).square().mean()).backward()
            attack.step()
        optimizer.zero_grad()
        wrapped(x + change.detach()).square().mean().backward()
        optimizer.step()


class Counting(nn.Module):
    """Keeps sums of each rank's own in a buffer."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        out = self.model(x)
        self.seen += out.detach().sum(0)
        return out


def ignored_buffers(model, rank):
    counting = Counting(model)
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(counting, ["seen"])
    train(DistributedDataParallel(counting), rank)


dist.init_process_group("gloo")
torch.manual_seed(0)
globals()[sys.argv[1]](nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 4)), dist.get_rank())
dist.destroy_process_group()
