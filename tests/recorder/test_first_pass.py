"""The first forward and backward, module by module, where the environment asks for it."""

from __future__ import annotations

import pytest
import torch
from torch.nn.modules import module as nn_module
from torch.nn.parallel import DistributedDataParallel as DDP

from ddpnb.recorder.digests import exact
from ddpnb.recorder.inputs import whole
from tests.recorder.test_replicas import Net, batch, train

pytestmark = pytest.mark.usefixtures("alone")
_DIGITS = (1 << 48) - 1


def rows(watched, kind):
    return [sample for sample in watched.samples() if sample.kind == kind]


def test_nobody_asks(watched):
    train(DDP(Net()), 2)
    assert rows(watched, "outputs") == rows(watched, "local") == []


def test_outputs_and_gradients_of_the_first_pass(watched, monkeypatch):
    monkeypatch.setenv("DDPNB_MODULES", "1")
    torch.manual_seed(0)
    model = DDP(Net())
    output = model(batch(0))
    output.sum().backward()
    gradients = {name: float(exact(p.grad) & _DIGITS) for name, p in model.module.named_parameters()}
    (outputs,) = rows(watched, "outputs")
    assert list(outputs.facts) == ["inputs", "body (Linear)", "norm (BatchNorm1d)", "head (Linear)", "(model) (Net)"]
    assert outputs.facts["(model) (Net)"] == outputs.facts["head (Linear)"] == float(exact(output.detach()) & _DIGITS)
    train(model, 2)
    (local,) = rows(watched, "local")
    assert dict(local.facts) == gradients  # of one rank: the average is the gradient itself
    assert list(local.facts)[0].startswith("head.")  # in the order of the backward
    assert not model.module._forward_pre_hooks
    assert not nn_module._global_forward_hooks
    assert not any(p._backward_hooks for p in model.module.parameters())


def test_numbers_are_the_same(watched, monkeypatch):
    weights = []
    for asked in ("0", "1"):
        monkeypatch.setenv("DDPNB_MODULES", asked)
        torch.manual_seed(0)
        model = DDP(Net())
        train(model, 3)
        weights.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))


def test_all_of_a_batch_counts():
    large = torch.zeros(100_000)
    other = large.clone()
    other[-1] = 1
    assert whole((large,), {}) == whole((large.clone(),), {}) != whole((other,), {})
    assert whole((), {"x": [large]}) == whole((large,), {})
    assert whole((3, "text"), {}) == whole((torch.zeros(2).to_sparse(),), {}) == whole(([large[:2]] * 99,), {}) == 0
