"""What the end of a loss's graph tells: its value, its reduction and what it was scaled by. Real graphs."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from ddpnb.recorder.models.losses import loss_facts, unused
from tests.torch_names import needs

FACTORS = needs("torch.Tensor().grad_fn._raw_saved_other.data")


@pytest.fixture
def out():
    return nn.Linear(4, 3)(torch.ones(5, 4))


TARGET = torch.tensor([0, 1, 2, 0, 1])
GRAPHS = {
    "mean": (lambda out: out.mean(), "Mean", 0),
    "sum": (lambda out: out.sum(), "Sum", 0),
    "mse mean": (lambda out: F.mse_loss(out, torch.zeros(5, 3)), "MseLoss mean", 0),
    "mse sum": (lambda out: F.mse_loss(out, torch.zeros(5, 3), reduction="sum"), "MseLoss sum", 0),
    "cross entropy": (lambda out: F.cross_entropy(out, TARGET), "NllLoss mean", 0),
    "scaled": (lambda out: out.mean() * 4, "scaled < Mean", 1),
    "divided": (lambda out: out.mean() / 4, "scaled < Mean", 1),
    "by a tensor": (lambda out: torch.tensor(4.0) * out.mean(), "scaled < Mean", 1),
    "two losses": (lambda out: out.mean() + out.sum(), "Add", 0),
    "scaled twice": (lambda out: out.mean() / 4 * 8, "scaled < scaled < Mean", 2),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=FACTORS) if GRAPHS[name][2] else name for name in GRAPHS])
def test_the_end_of_a_graph(out, name):
    make, text, factors = GRAPHS[name]
    loss = make(out)
    told, values = loss_facts(loss)
    assert told == text
    assert values[0] == loss.item()
    assert len(values) == 1 + factors


@FACTORS
@pytest.mark.parametrize(
    ("make", "factors"),
    [
        (lambda x: x * 4, [4]),
        (lambda x: 4 * x, [4]),
        (lambda x: x / 4, [0.25]),
        (lambda x: x / torch.tensor(4.0), [0.25]),
        (lambda x: torch.tensor(3.0) * x / 2, [0.5, 3]),
        (lambda x: 1 / x, [1]),  # it is 1 times the reciprocal
        (lambda x: x * torch.ones(3).mean(), [1]),
        (lambda x: x * x, []),
        (lambda x: x / torch.tensor(0.0), []),
    ],
)
def test_factors_from_the_outside_inwards(out, make, factors):
    assert loss_facts(make(out.mean()))[1][1:] == factors


def test_a_loss_that_is_no_number_of_the_cpu(out):
    assert loss_facts(out)[1] == []
    assert loss_facts(nn.Linear(4, 3, device="meta")(torch.ones(5, 4, device="meta")).sum())[1] == []
    assert loss_facts(torch.tensor(3.0, requires_grad=True)) == ("", [3.0])


def test_a_checkpointed_part_is_not_computed_again():
    count = []

    def part(x):
        count.append(1)
        return x * 2

    x = torch.ones(3, requires_grad=True)
    loss = checkpoint(part, x, use_reentrant=False).sum() * checkpoint(part, x, use_reentrant=False).mean()
    before = len(count)
    loss_facts(loss)
    unused(loss, ["x"], [x])
    assert len(count) == before == 2
    loss.backward()
    assert x.grad is not None


def test_parameters_that_a_loss_does_not_reach():
    used, spare, frozen = nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(4, 2).requires_grad_(False)
    parameters = [*used.parameters(), *spare.parameters(), *frozen.parameters()]
    names = [f"{module}.{name}" for module in ("used", "spare", "frozen") for name in ("weight", "bias")]
    x = torch.ones(1, 4)
    assert unused((used(x) + frozen(x)).sum(), names, parameters) == ["spare.weight", "spare.bias"]
    assert unused((used(x) + spare(x)).sum(), names, parameters) == []
    assert unused(used.weight.sum(), names, parameters) == ["used.bias", "spare.weight", "spare.bias"]
    assert unused(torch.tensor(1.0), names, parameters) == []


def test_a_graph_that_is_too_large_tells_nothing():
    x, spare = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    loss = x
    for _ in range(20_001):
        loss = loss + 0
    assert unused(loss, ["x", "spare"], [x, spare]) == []
