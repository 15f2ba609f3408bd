"""What is inside a value: one level, bounded, and without running code of the user's."""

from __future__ import annotations

import argparse
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from ddpnb.recorder.stacks import inside as opening
from ddpnb.recorder.stacks.inside import MAX_INSIDE, inside, look
from tests.recorder.stacks.test_locals import HOSTILE, never

Point = namedtuple("Point", "x y")  # noqa: PYI024


@dataclass(slots=True)
class Slotted:
    size: int = 3
    _hidden: int = 4


class Hostile:
    __dict__ = property(never)
    __getattribute__ = __getattr__ = __repr__ = __iter__ = never


class Attributes:
    def __init__(self):
        self.lr, self._private = 0.1, 2

    __repr__ = __getattr__ = never
    computed = property(never)


class Items(dict):
    __iter__ = items = __getitem__ = keys = never


class Sequence(list):
    __iter__ = __len__ = __getitem__ = never


def labels(value):
    return [label for label, _ in inside(value)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (argparse.Namespace(lr=1, model="a"), [".lr", ".model"]),
        (SimpleNamespace(a=1), [".a"]),
        ({"image": 1, 3: 2, ("a", 1): 3}, ["['image']", "[3]", "[('a', 1)]"]),
        (OrderedDict(a=1), ["['a']"]),
        (defaultdict(list, a=1), ["['a']"]),
        (Items(a=1), ["['a']"]),
        ([5, 6], ["[0]", "[1]"]),
        (Sequence([5]), ["[0]"]),
        (deque([1]), ["[0]"]),
        (Point(1, 2), [".x", ".y"]),
        (Slotted(), [".size", "._hidden"]),
        (Attributes(), [".lr", "._private"]),
        (Hostile(), []),
        (torch.ones(2), []),
        ("text", []),
        (3, []),
        (argparse, []),
        (Point, []),
    ],
    ids=lambda value: type(value).__name__,
)
def test_parts_and_their_labels(value, expected):
    assert labels(value) == expected


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_code_of_the_users_runs(kind):
    list(inside(HOSTILE[kind]()))


def test_modules_and_optimizers():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    assert labels(model) == ["[0]", "[1]", ".training"]
    assert {".weight", ".bias", ".running_mean", ".in_features"} - {*labels(model[0]), *labels(model[1])} == set()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert labels(optimizer) == [".defaults", ".state", ".param_groups"]


def test_a_path_is_written_as_in_python():
    names = {"o": SimpleNamespace(groups=[{"lr": 0.1, "lr2": 0.2}]), "odd": {"a.b": {"c]": 7}}}
    assert opening._found(names, "o.groups[0]['lr2']") == 0.2
    assert opening._found(names, "odd['a.b']['c]']") == 7
    for path in ("", "x", "o.", "o.groups[1]", "o.groups[0]x", "o()", ".groups", "__import__('os')"):
        with pytest.raises(LookupError):
            opening._found(names, path)


def test_a_look_into_a_frame():
    batch = {f"k{n}": n for n in range(MAX_INSIDE + 6)}
    frame = sys._getframe()
    answer = look(frame.f_code.co_filename, frame.f_code.co_name, "batch")
    assert answer["inside"][:2] == [["['k0']", "0"], ["['k1']", "1"]] and answer["more"] == 6
    assert look(frame.f_code.co_filename, frame.f_code.co_name, "batch.x") == {"error": "has no batch.x"}
    assert look(frame.f_code.co_filename, "another", "batch") == {"error": "is no longer in this function"}
    del batch


def test_of_very_many_parts_the_first_are_shown_and_all_are_counted():
    many = dict.fromkeys(range(100_000), 7)
    frame = sys._getframe()
    answer = look(frame.f_code.co_filename, frame.f_code.co_name, "many")
    assert answer["inside"][0] == ["[0]", "7"] and answer["more"] == len(many) - MAX_INSIDE
