"""What a model was given, in words and in one number; odd inputs are left alone. Real tensors."""

from __future__ import annotations

import gc
import math
from collections import OrderedDict, UserDict

import pytest
import torch

from ddpnb.recorder.events.inputs import describe, finite, structure


def text(*inputs, **kwargs):
    return describe(inputs, kwargs)[0]


def digest(*inputs):
    return describe(inputs, {})[1]


def test_structure_alone():
    batch = {"x": torch.zeros(2, 3), "y": [1, 2]}
    assert structure(batch) == text(batch)[1:-1] == "{x: float32[2d], y: (int, ...)}"


def good(*inputs):
    return describe(inputs, {})[2]


def test_structure_without_sizes():
    x, labels = torch.zeros(6, 4), torch.zeros(6, dtype=torch.int64)
    assert text(x) == text(torch.zeros(3, 9)) == "(float32[2d])"
    assert text(x, {"mask": labels, 3: [x, None]}) == "(float32[2d], {mask: int64[1d], 3: (float32[2d], NoneType)})"
    assert text(x, y=labels) == "(float32[2d]){y: int64[1d]}"
    assert len({text(x), text(x.half()), text(x[0]), text(x, x), text([x]), text(None)}) == 6


def test_how_many_there_are_is_a_size_too():
    assert text([torch.zeros(3)] * 4) == text([torch.zeros(3)] * 7) == "((float32[1d], ...))"
    assert text(["a", "b"]) == text(["a", "b", "c"]) == "((str, ...))"
    assert text(torch.zeros(3), torch.zeros(3)) == "(float32[1d], float32[1d])"


def test_structure_is_bounded():
    assert len(text([[[[1, 2.0] * 8] * 16] * 16] * 16)) < 4000
    deep = [torch.zeros(1)]
    for _ in range(50):
        deep = [deep]
    assert len(text(deep)) < 40
    kept = describe(([torch.zeros(1)] * 500,), {})[3]
    assert len(kept) <= 16


def test_the_same_numbers_have_the_same_digest():
    x = torch.randn(5, 7)
    assert digest(x) == digest(x.clone()) == digest(x.t().contiguous().t()) == digest({"a": [x]}) != 0
    other = x.clone()
    other[4, 6] += 1e-6
    assert digest(other) != digest(x)
    assert digest(x, other) != digest(other, x)
    assert float(int(digest(x))) == digest(x)


def test_a_large_input_is_digested_as_far_as_its_beginning():
    x = torch.zeros(1 << 20)
    known = digest(x)
    x[-1] = 1
    assert digest(x) == known
    x[1000] = 1
    assert digest(x) != known


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none(dtype, bad):
    x = torch.ones(300, dtype=dtype)
    assert good(x) == 1
    x[299] = bad
    assert good(x) == 0
    assert good(torch.ones(2), x) == 0
    assert not finite(x)


def test_a_sum_that_overflows_is_no_infinity():
    x = torch.full((1000,), 3e38)
    assert good(x) == 1 and finite(x)


@pytest.mark.parametrize("value", [torch.zeros(0, 3), torch.ones(3, dtype=torch.int32), torch.eye(3).bool()])
def test_what_has_no_fractions_is_finite(value):
    assert good(value) == 1 and finite(value)


class Refuses(torch.Tensor):
    """A sharded tensor: an operation on it could be a collective."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(func)


ODD = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "meta": lambda: torch.ones(3, device="meta"),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.strided),
    "sharded": lambda: torch.Tensor._make_subclass(Refuses, torch.ones(3)),
}


@pytest.mark.filterwarnings("ignore:.*nested tensors")
@pytest.mark.parametrize("name", ODD)
def test_tensors_that_cannot_be_read_are_left_alone(name):
    odd = ODD[name]()
    assert digest(odd) == 0
    assert good(odd) == 1 and finite(odd)
    assert digest(odd, torch.ones(3)) == digest(torch.ones(3))


def test_a_subclass_that_only_carries_a_name_is_read():
    named = type("Image", (torch.Tensor,), {})
    x = torch.randn(4)
    assert digest(x.as_subclass(named)) == digest(x)


def test_no_code_of_the_users_is_run():
    class Bad:
        def __getattribute__(self, name):
            raise AssertionError(name)

    class BadList(list):
        def __iter__(self):
            raise AssertionError

        __getitem__ = __len__ = __iter__

    class BadDict(dict):
        def items(self):
            raise AssertionError

        __iter__ = __len__ = __getitem__ = items

    found = text(BadList([torch.zeros(2)]), BadDict(a=1), Bad(), UserDict(a=1), OrderedDict(b=2))
    assert found == "((float32[1d]), {a: int}, Bad, UserDict, {b: int})"


def test_inputs_are_not_kept_alive():
    x = torch.ones(2)
    (ref,) = describe((x,), {})[3]
    assert ref() is x
    del x
    gc.collect()
    assert ref() is None


def test_inputs_stay_as_they_are():
    x = torch.randn(4, 3, requires_grad=True)
    before = x.detach().clone()
    describe((x.t(),), {"x": x})
    assert torch.equal(x, before) and x.grad is None and x._version == 0
