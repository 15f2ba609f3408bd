"""Models and samples as data: what comes from a rank's files may be anything."""

from __future__ import annotations

import math

import pytest

from ddpnb.recording.calls import NO_SITE, Site
from ddpnb.recording.codec import JSON
from ddpnb.recording.names import UNDECODABLE
from ddpnb.recording.replicas import Model, Sample, TensorSpec, model_of


def test_a_model_comes_back_from_json():
    told = {
        "number": 2, "wrapper": "DistributedDataParallel", "module": "Net", "group": "0,1#0", "ranks": [0, 1],
        "tensors": [
            {"name": "fc.weight", "shape": [2, 3], "dtype": "float32", "device": "cuda:1", "kind": "Linear"},
            {"name": "bn.running_mean", "shape": [3], "dtype": "float32", "buffer": True, "trains": False, "ignored": True},
        ],
        "options": {"device_ids": None}, "site": {"file": "train.py", "line": 7, "function": "main"}, "more": 1,
    }  # fmt: skip
    model = model_of(told)
    assert (model.number, model.wrapper, model.group, model.ranks) == (2, "DistributedDataParallel", "0,1#0", (0, 1))
    assert model.parameters == (TensorSpec("fc.weight", (2, 3), "float32", "cuda:1", kind="Linear"),)
    assert model.buffers == (TensorSpec("bn.running_mean", (3,), "float32", "cpu", False, True, "", True),)
    assert (model.options, model.site) == ({"device_ids": None}, Site("train.py", 7, "main"))


def test_what_is_missing_has_a_value_all_the_same():
    assert model_of({}) == Model(0)
    assert JSON.read(TensorSpec, {}) == TensorSpec("?")
    assert len(JSON.read(TensorSpec, {"name": "x" * 5000}).name) == 400


@pytest.mark.parametrize(
    "value",
    [{"number": "x"}, {"ranks": ["a"]}, {"tensors": [{"shape": ["a"]}]}, {"ranks": 3}, {"options": 7},
     {"tensors": [{"shape": [1e999]}]}, {"tensors": [{"shape": [10**15]}]}, {"tensors": [{"shape": [2**30]}] * 200}],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_as_such(value):
    with pytest.raises(UNDECODABLE):  # who reads the files of the ranks catches these
        model_of(value)


@pytest.mark.parametrize(
    ("value", "number"),
    [(1, 1.0), (0.5, 0.5), (True, 1.0), ("1", None), (None, None), ([1], None), (10**400, None), (math.inf, math.inf)],
)
def test_a_fact_that_is_a_number(value, number):
    sample = Sample(0, "forward", 1, facts={"loss": value})
    assert (sample.loss, sample.scale) == (number, None)


def test_numbers_keep_their_order():
    facts = {"group 1: lr": 3, "lr": 1, "factor 1": 2.0, "factor 2": "x", "factor 3": 4.0}
    assert Sample(0, "gradients", 1, facts=facts).factors == (2.0, 4.0)


def test_settings_of_an_optimizer_are_what_has_no_attribute_of_its_own():
    facts = {
        "forwards": 2,
        "made": 1,
        "edited": ["lr"],
        "optimizer": "SGD",
        "lr": 0.1,
        "steps": 3,
        "betas": [1],
        "x": 10**400,
    }
    sample = Sample(0, "gradients", 1, facts=facts)
    assert sample.settings == {"optimizer": "SGD", "lr": 0.1, "steps": 3.0}
    assert Sample(0, "forward", 1, facts=facts).settings == {}


def test_digests_of_modules_are_numbers():
    facts = {"fc": 3, "head": 0.5, "odd": "x", "huge": 10**400, "x" * 5000: 1}
    assert Sample(0, "outputs", 1, facts=facts).values == {"fc": 3.0, "head": 0.5, "x" * 400: 1.0}


@pytest.mark.parametrize(
    ("value", "site"),
    [
        ({"file": "a.py", "line": 3, "function": "f"}, Site("a.py", 3, "f")),
        ({}, NO_SITE), ({"line": "x"}, NO_SITE), ("a.py:3", NO_SITE), (None, NO_SITE),
    ],
    ids=str,
)  # fmt: skip
def test_a_fact_that_is_a_place(value, site):
    assert Sample(0, "gradients", 1, facts={"bypass_site": value}).bypass_site == site


def test_facts_are_bounded_and_of_their_types():
    hostile = Sample(
        0, "backward", 1, facts={"loss": "1", "graph": "x" * 5000, "unused": ["w" * 5000, 7], "edited": "lr"}
    )
    assert (hostile.loss, len(hostile.graph), hostile.edited) == (None, 4000, None)
    assert hostile.unused is not None and [len(name) for name in hostile.unused] == [400, 1]
    assert (Sample(0, "backward", 1).unused, Sample(0, "backward", 1).inputs) == (None, "")
