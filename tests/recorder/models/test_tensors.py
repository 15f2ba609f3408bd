"""A tensor of this process by its name: what is read, that nothing is run or changed, and what is refused."""

from __future__ import annotations

import threading
import time
from array import array
from collections import OrderedDict
from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from ddpnb.recorder.models import tensor_values, tensors
from ddpnb.recorder.models.tensors import Tensors
from ddpnb.recording.tensors import LOOKED_AT, PIECE
from ddpnb.recording.verbs import Histogram, Pieces, Tensor

NOBODY = SimpleNamespace(living=list, optimizers=())


def answer(variables, name, models=NOBODY, kind=Tensor, timeout=10.0, **asked):
    """What a rank that is idle answers."""
    return said(
        Tensors(models, lambda: variables).answer(kind(**{"name": name, "frame": 0, "timeout": timeout, **asked}))
    )


def said(answer):
    return {**vars(answer), **vars(answer).get("numbers", {})}


@pytest.fixture(autouse=True)
def idle(monkeypatch):
    monkeypatch.setattr(tensors, "frames_of", lambda _: [])


class Slotted:
    __slots__ = ("kept",)


class Computes:
    ran = False
    shared = torch.ones(2)

    @property
    def weight(self):
        type(self).ran = True
        return torch.ones(1)

    def __getattr__(self, name):
        type(self).ran = True
        return torch.ones(1)

    def __getitem__(self, name):
        type(self).ran = True
        return torch.ones(1)


class Pair(NamedTuple):
    x: torch.Tensor
    y: int


@pytest.fixture
def variables():
    slotted, computes = Slotted(), Computes()
    slotted.kept = torch.full((3,), 2.0)
    computes.own = {"a": [torch.zeros(1), torch.ones(4)]}
    model = torch.nn.Sequential(OrderedDict(fc=torch.nn.Linear(3, 2), norm=torch.nn.BatchNorm1d(2)))
    model.fc.weight.grad = torch.ones(2, 3)
    return {
        "slotted": slotted,
        "computes": computes,
        "model": model,
        "pair": Pair(torch.ones(5), 1),
        "n": 3,
        "layers": torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(3, 2)),
    }


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        ("slotted.kept", 3),
        ("slotted.kept[1:]", 2),
        ("computes.own['a'][-1]", 4),
        ("computes.shared", 2),
        ("model.fc.weight", 6),
        ("model.fc.weight.grad", 6),
        ("model.fc.weight.T[0]", 2),
        ("model.norm.running_mean", 2),
        ("layers[-1].bias", 2),
        ("pair.x", 5),
        ("pair[0]", 5),
    ],
)
def test_attributes_and_items_are_read_where_they_lie(variables, name, elements):
    found = answer(variables, name)
    assert found.get("elements") == elements, found
    assert not Computes.ran


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("computes.weight", "computes.weight is computed: to read it would run code"),
        ("computes.other", "computes has no attribute other"),
        ("computes['x']", "cannot be read without running code"),
        ("model.fc.wieght", "model.fc has no attribute wieght. Did you mean weight?"),
        ("model.fc.bias.grad", "model.fc.bias has no gradient now"),
        ("computes.own['b']", "computes.own has no item 'b'"),
        ("computes.own['a'][2]", "has 2 items, and none with the index 2"),
        ("slotted.kept[7]", "out of bounds"),
        ("slotted.kept.shape", "only grad, data, T, mT can be read"),
        ("model", "model is no tensor: it is of the class Sequential"),
        (
            "modle.fc",
            "there is no variable modle in the variables of cells (the rank is idle), and no model is followed. Did you mean model?",
        ),
        ("n", "n is no tensor: it is of the class int"),
    ],
)
def test_what_cannot_be_read_is_said(variables, name, says):
    found = answer(variables, name)
    assert says in found.get("error", ""), found
    assert not Computes.ran


def test_the_values_in_numbers():
    x = torch.tensor([3.0, 0.0, float("nan"), -4.0, float("inf"), -float("inf"), -0.0])
    found = answer({"x": x}, "x")
    assert (found["low"], found["high"], found["mean"], found["norm"]) == (-4.0, 3.0, -0.25, 5.0)
    assert (found["nans"], found["infs"], found["zeros"], found["looked_at"]) == (1, 2, 2, 7)
    assert (found["dtype"], found["shape"], found["device"]) == ("float32", [7], "cpu")
    counts = answer({"x": x}, "x", kind=Histogram, low=-4.0, high=3.0)["counts"]
    assert sum(counts) == 4 and counts[0] == counts[-1] == 1
    assert answer({"x": torch.full((2,), float("nan"))}, "x")["low"] is None
    assert answer({"x": torch.empty(0)}, "x")["looked_at"] == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.bool, torch.uint8])
def test_the_elements_arrive_exactly(dtype):
    x = torch.tensor([0, 1, 1, 0], dtype=dtype)
    (piece,) = answer({"x": x}, "x", kind=Pieces, numbers=(0,))["pieces"]
    assert array(piece.code, piece.values).tolist() == [0, 1, 1, 0]


def test_a_tensor_that_does_not_lie_in_one_piece_is_read_in_its_logical_order():
    x = torch.arange(6 * PIECE).reshape(2, 3, PIECE)
    same = x.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    assert not same.is_contiguous()
    assert answer({"x": same}, "x")["digests"] == answer({"x": x}, "x")["digests"]
    assert answer({"x": x[:, :, ::2]}, "x")["elements"] == 3 * PIECE
    complex_ = torch.complex(torch.tensor([1.0, 2.0]), torch.tensor([0.0, -3.0]))
    assert answer({"x": complex_.conj()}, "x")["high"] == 3.0


def test_of_a_large_tensor_parts_are_read_that_lie_evenly_over_it():
    x = torch.zeros(1).expand(3 * LOOKED_AT + 1)
    found = answer({"x": x.contiguous()}, "x", timeout=60.0)
    assert found["elements"] == 3 * LOOKED_AT + 1
    assert LOOKED_AT // 2 < found["looked_at"] <= LOOKED_AT
    assert found["looked_at"] == found["zeros"]


def test_nothing_changes():
    x = torch.nn.Parameter(torch.randn(2 * PIECE))
    (x * x).sum().backward()
    y = (x + 1) * 2
    before, state = (x.detach().clone(), x.grad.clone(), x._version, y._version), torch.random.get_rng_state()
    for name in ("x", "x.grad", "y", "x.data", "y[3]"):
        assert answer({"x": x, "y": y}, name)["looked_at"]
    assert answer({"x": x, "y": y}, "y.grad")["error"].startswith("y has no gradient now: it is not a leaf")
    assert torch.equal(before[0], x) and torch.equal(before[1], x.grad)
    assert (x._version, y._version) == before[2:]
    assert torch.equal(state, torch.random.get_rng_state())
    y.sum().backward()  # the graph is as it was


class Tagged(torch.Tensor):
    """A subclass that counts what torch asks it."""

    used = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.used += 1
        return super().__torch_function__(func, types, args, kwargs or {})


def test_subclasses_run_no_code():
    tagged = torch.ones(3).as_subclass(Tagged)
    used = Tagged.used
    assert answer({"x": tagged}, "x")["norm"] == pytest.approx(3**0.5)
    assert Tagged.used == used
    assert "sparse" in answer({"x": torch.eye(2).to_sparse()}, "x")["error"]
    assert "no values" in answer({"x": torch.ones(1, device="meta")}, "x")["error"]
    freed = torch.ones(8)
    freed.untyped_storage().resize_(0)
    assert "no memory now" in answer({"x": freed}, "x")["error"]


def test_a_read_that_takes_too_long_gives_up_and_one_that_waits_is_left_alone(monkeypatch):
    slow = threading.Event()
    reader = Tensors(NOBODY, lambda: {"x": torch.ones(4 * PIECE)})
    asked = Tensor(name="x", frame=0, timeout=0.05)
    real = tensor_values.Reading.piece
    monkeypatch.setattr(tensor_values.Reading, "piece", lambda self, n: (time.sleep(0.04), real(self, n))[1])
    assert "could not be read within 0.05 s" in reader.answer(asked).error
    monkeypatch.setattr(tensor_values.Reading, "piece", lambda self, n: (slow.wait(), real(self, n))[1])
    assert "the device gave no values" in reader.answer(asked).error
    assert "an earlier read still waits" in reader.answer(asked).error
    slow.set()
    reader._reads.stuck.join(10)
    monkeypatch.undo()
    monkeypatch.setattr(tensors, "frames_of", lambda _: [])
    assert reader.answer(replace(asked, timeout=10.0)).numbers["looked_at"] == 4 * PIECE


@pytest.mark.usefixtures("alone")
def test_the_tensors_of_a_followed_model_have_names(watched):
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    models = watched.replicas.models
    for name, shape in (
        ("0.weight", [2, 3]),
        ("0.weight.grad", [2, 3]),
        ("0.bias.exp_avg", [2]),
        ("1.running_mean", [2]),
    ):
        found = answer({}, name, models)
        assert found.get("shape") == shape, found
        assert (found["where"], found["step"]) == ("model 0", 1)
        assert answer({"x": 1}, name, models, frame=None)["shape"] == shape
    offered = Tensors(models, lambda: {"model": model}).names(0)
    assert {"0.weight", "0.weight.grad", "0.bias.exp_avg", "model.module[0].weight"} <= {*offered}
    assert all(not answer({"model": model}, name, models)["error"] for name in offered)
    assert "Did you mean 0.weight?" in answer({}, "0.weihgt", models)["error"]
