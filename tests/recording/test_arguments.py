"""What a user may give as a number or a list, and what is refused with a hint."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from ddpnb.errors import UsageError
from ddpnb.recording import arguments


class Raising:
    """An iterable of the user's own."""

    def __iter__(self):
        yield 0
        raise RuntimeError


@pytest.mark.parametrize(
    "value",
    [torch.tensor(1.5), np.array(1.5), torch.ones(2, 2), itertools.count(), Raising(), None, 1.5, True, [True], "1", [-1], object()],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_is_no_list_of_ranks_is_refused(value):
    with pytest.raises(UsageError):
        arguments.ranks(value, 4)


@pytest.mark.parametrize("check", [arguments.wholes, arguments.texts])
@pytest.mark.parametrize(
    "value", [torch.tensor(1), np.array(1), itertools.count(), Raising()], ids=["tensor", "array", "count", "raises"]
)
def test_what_is_no_list_is_refused(check, value):
    with pytest.raises(UsageError):
        check("these", value)


@pytest.mark.parametrize(
    "value", [2, np.int64(2), torch.tensor(2), [2], np.array([2, 2]), torch.tensor([2]), {2}, (np.uint8(2),)], ids=repr
)
def test_integers_of_numpy_and_torch_are_ranks(value):
    ranks = arguments.ranks(value, 4)
    assert ranks == (2,) and type(ranks[0]) is int


def test_integers_of_numpy_are_numbers():
    assert type(arguments.whole("seq", np.int64(3), 1)) is int
    assert type(arguments.member("rank", np.int32(1), [0, 1])) is int
    with pytest.raises(UsageError):
        arguments.member("rank", np.int32(5), [0, 1])


def test_a_long_path_keeps_its_end():
    path = f"/home/{'folder/' * 20}noise.bin"
    shown = arguments.short(path)
    assert len(shown) == 80 and shown.startswith("'...") and shown.endswith("folder/noise.bin'")
    assert arguments.short("/home/noise.bin") == "'/home/noise.bin'"
    assert arguments.short("x" * 100).endswith("...")
