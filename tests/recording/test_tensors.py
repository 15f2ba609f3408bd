"""The names of tensors: variables, attributes and items, nothing that would have to be evaluated."""

from __future__ import annotations

import pytest

from ddpnb.recording.tensors import path


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
