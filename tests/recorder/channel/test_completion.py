"""The names that Tab completes: no code of the user runs."""

from __future__ import annotations

import argparse
import json

import pytest
from torch import nn

from ddpnb.recorder.channel.completion import completions


class Hostile:
    """Fails the test as soon as anything asks it."""

    def __init__(self):
        object.__setattr__(self, "weights", 1)

    def __dir__(self):
        raise AssertionError

    def __getattribute__(self, name):
        raise AssertionError(name)

    @property
    def loss(self):
        raise AssertionError


class Slotted:
    __slots__ = ("left", "right")


SPACE = {"model": nn.Sequential(nn.Linear(2, 2)), "mode": 1, "_hidden": 2, "hostile": Hostile(), "slotted": Slotted(),
         "args": argparse.Namespace(steps=3, lr=0.1), "json": json, "Hostile": Hostile, 3: "no name", "not a name": 1}  # fmt: skip


@pytest.mark.parametrize(
    ("owner", "prefix", "some"),
    [
        ("", "mod", ["mode", "model"]),
        ("", "_", ["_hidden"]),
        ("args", "", ["lr", "steps"]),
        ("json", "dum", ["dump", "dumps"]),
        ("hostile", "", ["loss", "weights"]),
        ("Hostile", "lo", ["loss"]),
        ("slotted", "", ["left", "right"]),
        ("nothing", "", []),
        ("mode", "bit_l", ["bit_length"]),
    ],
)
def test_variables_and_attributes(owner, prefix, some):
    assert completions(SPACE, owner, prefix) == some


def test_parts_of_a_module_of_torch_and_its_methods():
    linear = {"linear": nn.Linear(2, 2)}
    assert {"weight", "bias", "forward"} <= set(completions(linear, "linear", ""))
    assert completions(linear, "linear", "_par") == ["_parameters"]


def test_names_are_bounded():
    many = {f"x{number}": 1 for number in range(5000)} | {"x" * 5000: 1}
    found = completions(many, "", "x")
    assert len(found) == 500 and max(map(len, found)) <= 100
