"""Models of which a part is on another device."""

from __future__ import annotations

import pytest

from ddpnb.rules.divergence import ddp_setup
from tests.rules.divergence.setups import WRAPPED, recorded, some, the_finding, wraps
from tests.rules.training import tensor


@pytest.mark.parametrize("culprits", [(0,), (2,), (0, 1, 2, 3)], ids=str)
@pytest.mark.parametrize(("left", "usual"), [("cpu", "cuda:0"), ("meta", "cpu")])
def test_a_part_of_the_model_stayed_elsewhere(culprits, left, usual):
    moved = [tensor(f"layer.{n}", device=usual) for n in range(3)]
    odd = [*moved, tensor("head.weight", device=left)]
    found = the_finding(recorded(some(culprits, wraps(*odd), wraps(*moved, tensor("head.weight", device=usual)))))
    assert (found.code, found.culprits, found.waiting) == ("DDP202", culprits, ())
    assert found.tensors == ("head.weight",)
    assert found.where == tuple((number, WRAPPED) for number in culprits)
    assert left in found.summary


def test_most_of_the_model_is_on_meta():
    """What has no values is what is wrong, be it most of it."""
    tensors = [tensor("a", device="meta"), tensor("b", device="meta"), tensor("c", device="cpu")]
    assert the_finding(recorded(wraps(*tensors))).tensors == ("a", "b")
    assert the_finding(recorded(wraps(*tensors[:2]))).tensors == ("a", "b")


def test_a_model_that_is_split_over_devices_on_purpose():
    assert ddp_setup.find(recorded(wraps(tensor("a", device="cuda:0"), tensor("b", device="cuda:1")))) == []


def test_each_rank_on_its_own_device():
    assert ddp_setup.find(recorded(lambda r: r.wraps(tensor("a", device=f"cuda:{r.rank}"), at=WRAPPED))) == []
