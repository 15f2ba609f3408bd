"""What a fault is, and what is refused."""

from __future__ import annotations

import json

import pytest

from ddpnb.errors import UsageError
from ddpnb.recording.calls import OPERATIONS
from ddpnb.recording.faults import KINDS, Fault, fault, variables
from ddpnb.rules import catalogue


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_every_kind_names_findings_and_operations_that_exist(kind):
    assert {kind.finding, *kind.also} <= set(catalogue.codes())
    assert set(kind.ops) <= set(OPERATIONS)
    assert kind.what and kind.what[0].islower() and not kind.what.endswith(".")


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_it_goes_through_json_and_back(kind):
    given = {one.name: one.default for one in kind.parameters}
    one = fault(kind.name, times=3, step=2, probability=0.5, seed=4, **given)
    assert Fault.from_json(json.loads(json.dumps(one.to_json()))) == one
    assert str(one).startswith(kind.name)


def test_a_fault_in_words():
    one = fault("delay", op="all_reduce", seq=5, site="train.py:9", seconds=2, probability=0.5)
    assert str(one) == "delay seconds=2 of all_reduce #5 at train.py:9 with probability 0.5"
    assert fault("skip").finding == "DDP301"
    assert fault("hold_gil").kind == "hold gil"


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        ("skipp", {}, "Did you mean 'skip'"),
        ("zzz", {}, "Known faults: skip"),
        ("skip", {"op": "allreduce"}, "Did you mean 'all_reduce'"),
        ("other root", {"op": "barrier"}, "does not apply to barrier"),
        ("delay", {"hours": 1}, "It takes: seconds"),
        ("skip", {"hours": 1}, "It takes none"),
        ("delay", {"seconds": "1"}, "must be a number"),
        ("skip", {"seq": 0}, "from 1"),
        ("skip", {"step": -1}, "from 0"),
        ("skip", {"times": 0}, "from 1"),
        ("skip", {"probability": 0}, "above 0"),
        ("wrong port", {"seq": 3}, "does not apply to calls"),
    ],
)
def test_what_is_refused(kind, given, words):
    with pytest.raises(UsageError) as raised:
        fault(kind, **given)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    "value", [{}, {"kind": "skip", "seq": "5"}, {"kind": "delay", "values": {"a": 1}}, {"kind": 3}]
)
def test_json_that_is_no_fault_is_refused(value):
    with pytest.raises(UsageError):
        Fault.from_json(value)


def test_variables():
    assert variables(fault("wrong port"), 2000, 4) == {"MASTER_PORT": "2000"}
    assert variables(fault("world size"), 1, 4) == {"WORLD_SIZE": "5"}
    assert variables(fault("missing variable", name="RANK"), 1, 4) == {"RANK": None}
    assert variables(fault("variable", name="A", value="b"), 1, 4) == {"A": "b"}
    assert variables(fault("skip"), 1, 4) == {}


def test_every_fault_of_the_environment_changes_variables():
    for kind in KINDS.values():
        assert bool(variables(fault(kind.name), 2000, 2)) == (kind.place == "environment"), kind.name
