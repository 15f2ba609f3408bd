"""A wrapped model goes over to a new process group, and trains on as if nothing had been."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddpnb.recorder.collectives.rebind import Orphans


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).square().sum().backward()
    optimizer.step()


def test_over_to_a_new_group(alone, tmp_path):
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 4), static_graph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step(model, optimizer)
    parameters = [parameter.clone() for parameter in model.parameters()]
    orphans = Orphans()
    orphans.remember()
    orphans.remember()  # once is enough
    assert len(orphans) == 1
    old = dist.group.WORLD
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/again", rank=0, world_size=1)
    assert orphans.adopt() == [] and len(orphans) == 0
    assert model.process_group is dist.group.WORLD is not old
    assert all(map(torch.equal, parameters, model.parameters()))
    assert model.static_graph
    step(model, optimizer)
    assert not torch.equal(parameters[0], next(iter(model.parameters())))


def test_models_that_are_gone_and_groups_of_others(alone):
    orphans = Orphans()
    model = DistributedDataParallel(nn.Linear(4, 4), process_group=dist.new_group([0]))
    orphans.remember()
    assert len(orphans) == 0
    kept = DistributedDataParallel(nn.Linear(4, 4))
    orphans.remember()
    assert len(orphans) == 1
    orphans.forget()
    assert orphans.adopt() == []
    del model, kept
