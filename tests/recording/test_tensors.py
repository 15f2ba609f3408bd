"""The names of tensors: variables, attributes and items, nothing that would have to be evaluated."""

from __future__ import annotations

import pytest

from ddpnb.recording.tensors import facts_of, path


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("loss", ("loss", ())),
        ("model.fc.weight", ("model", (("attribute", "fc"), ("attribute", "weight")))),
        ("grads['x']", ("grads", (("item", "x"),))),
        ("layers[-1][2:, 0]", ("layers", (("item", -1), ("item", (slice(2, None), 0))))),
        (" a[ 1 ] . b ", ("a", (("item", 1), ("attribute", "b")))),
    ],
)
def test_a_path(name, means):
    assert path(name) == means


@pytest.mark.parametrize(
    "name",
    [
        "f(x)",
        "x + y",
        "x[i]",
        "x[f(1)]",
        "0.weight",
        "",
        "x = 1",
        "a[1:n]",
        "a[()]",
        "(lambda: 1).x",
        "x[True]",
        "[" * 999,
    ],
)
def test_what_is_no_path(name):
    assert path(name) is None


REPORTED = {
    "where": "w" * 999, "dtype": "d" * 999, "shape": [1] * 999, "device": "e" * 999, "requires_grad": True, "elements": 1,
    "looked_at": 1, "low": 0.0, "high": 1.0, "mean": None, "norm": None, "nans": 0, "infs": 0, "zeros": 0,
}  # fmt: skip


def test_what_a_rank_reports_is_bounded():
    facts = facts_of(REPORTED)
    assert [len(text) for text in (facts.where, facts.dtype, facts.device, facts.shape)] == [400, 40, 40, 64]


@pytest.mark.parametrize("name", sorted(REPORTED.keys() - {"where"}))
def test_what_a_rank_leaves_out_is_invalid(name):
    with pytest.raises(KeyError):
        facts_of({key: value for key, value in REPORTED.items() if key != name})
