"""One forward, looked at module by module when asked; nothing otherwise."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.modules import module as nn_module
from torch.nn.parallel import DistributedDataParallel as DDP

from ddpnb.recorder.models.tracing import Tracing
from ddpnb.recorder.stacks.digests import exact
from ddpnb.recording.events.runs import HooksDetached
from tests.recorder.models.test_replicas import Net, batch, train

pytestmark = pytest.mark.usefixtures("alone")


@pytest.fixture
def tracing(watched) -> Tracing:
    return watched.replicas.tracing


def no_hook_left():
    return not nn_module._global_forward_hooks


def test_nobody_asks(tracing):
    train(DDP(Net()), 3)
    assert tracing.traced == {}
    assert no_hook_left()


def test_the_tensors_of_the_wanted_forward(tracing):
    model = DDP(Net())
    tracing.arm(0, 3, modules=False)
    train(model, 2)
    assert tracing.traced == {}
    held = {name: exact(p) for name, p in model.module.named_parameters()}
    train(model, 2)
    told = tracing.traced[0]
    assert (told["turn"], told["done"], told["modules"], told["step"]) == (3, True, [], 2)
    assert {name: digest for name, digest, _ in told["tensors"] if name in held} == held


def test_modules_in_the_order_in_which_they_ran(tracing):
    model = DDP(Net())
    tracing.arm(0, 2, modules=True)
    model(batch(0)).sum().backward()
    assert tracing.traced == {}
    output = model(batch(1))
    told = tracing.traced[0]
    assert (told["turn"], told["done"]) == (2, True)
    assert [(name, kind) for name, kind, _ in told["modules"]] == [
        ("body", "Linear"),
        ("norm", "BatchNorm1d"),
        ("head", "Linear"),
        ("(model)", "Net"),
    ]
    assert told["modules"][3][2] == told["modules"][2][2] == exact(output.detach())
    assert no_hook_left()


def test_a_turn_that_is_over_is_the_next_one(tracing):
    model = DDP(Net())
    train(model, 3)
    tracing.arm(0, 1, modules=True)
    train(model)
    assert tracing.traced[0]["turn"] == 4  # whoever compares sees that it is another


def test_other_modules_are_not_told_of(tracing):
    model, teacher = DDP(Net()), nn.Linear(4, 4)

    class Distilled(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(4, 2)

        def forward(self, x):
            return {"out": self.net(teacher(x)), "all": [x, (x,)], "n": 3}

    student = DDP(Distilled())
    tracing.arm(1, 1, modules=True)
    model(batch(0))
    student(teacher(batch(0)))
    assert list(tracing.traced) == [1]
    assert [name for name, _, _ in tracing.traced[1]["modules"]] == ["net", "(model)"]


def test_outputs_of_every_kind_are_told_apart(tracing):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            self.kind = "tuple"

        def forward(self, x):
            y = x * self.weight
            return {"tuple": (y, x), "turned": (x, y), "dict": {"a": y}, "none": None}[self.kind]

    model, seen = DDP(Odd()), {}
    for turn, kind in enumerate(["tuple", "turned", "dict", "none", "tuple"], 1):
        model.module.kind = kind
        tracing.arm(0, turn, modules=True)
        model(torch.full((2,), 3.0))
        seen.setdefault(kind, tracing.traced[0]["modules"][-1][2])
    assert len(set(seen.values())) == 3  # a weight of 1 leaves what it multiplies as it is
    assert tracing.traced[0]["modules"][-1][2] == seen["tuple"] == seen["turned"]


def test_a_forward_that_fails_leaves_the_next_one_to_be_seen(tracing):
    model = DDP(Net())
    tracing.arm(0, 1, modules=True)
    with pytest.raises(RuntimeError, match="shapes"):
        model(torch.ones(2, 3))
    assert not tracing.traced[0]["done"]
    model(batch(0))
    assert no_hook_left()


def test_a_failing_look_takes_only_the_tracing_away(tracing, watched, monkeypatch, capsys):
    model = DDP(Net())

    def fail(_value):
        raise KeyError("of ours")

    monkeypatch.setattr("ddpnb.recorder.models.tracing.digest_of", fail)
    tracing.arm(0, 1, modules=True)
    train(model, 2)
    assert no_hook_left()
    assert capsys.readouterr().err.count("was disabled on this rank") == 1
    assert len(watched.events(HooksDetached)) == 1
    assert watched.replicas.models.exact()[0]["step"] == 2  # the watch itself goes on


def test_a_new_run_wants_nothing(tracing, watched):
    tracing.arm(0, 1, modules=True)
    watched.begin(2)
    train(DDP(Net()))
    assert tracing.traced == {}
