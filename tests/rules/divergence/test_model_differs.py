"""Models that differ between ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.rules.divergence import ddp_setup
from tests.rules.divergence.setups import WRAPPED, others, recorded, some, the_finding, wraps
from tests.rules.recordings import Rank, group, line, record
from tests.rules.training import NET, tensor

TALL = (tensor("fc.weight", (8, 4)), tensor("fc.bias", (8,)))
TWO = (tensor("one.weight", (4, 4)), tensor("other.weight", (4, 4)), tensor("head", (2,)))


@pytest.mark.parametrize("culprits", [(0,), (3,), (1, 2)], ids=str)
@pytest.mark.parametrize(
    ("odd", "usual", "tensors"),
    [
        (TALL, NET, ("fc.weight", "fc.bias")),
        ((*NET, tensor("extra")), NET, ("extra",)),
        (NET, (*NET, tensor("extra")), ("extra",)),
        ((NET[0],), NET, ("fc.bias",)),
        ((NET[0], replace(NET[1], trains=False)), NET, ("fc.bias",)),
    ],
    ids=["other shapes", "one more", "one less", "no bias", "frozen"],
)
def test_models_that_differ(culprits, odd, usual, tensors):
    found = the_finding(recorded(some(culprits, wraps(*odd), wraps(*usual)), world=5))
    assert (found.code, found.culprits, found.waiting) == ("DDP403", culprits, others(culprits, 5))
    assert found.tensors == tensors
    assert dict(found.where) == dict.fromkeys(range(5), WRAPPED)


def test_three_different_models_are_each_named_with_their_ranks():
    found = the_finding(record(*(Rank(n, 3).wraps(tensor("fc.weight", (4 + n,)), at=WRAPPED) for n in range(3))))
    assert (found.code, found.culprits, found.sides) == ("DDP403", (), ((0,), (1,), (2,)))
    for number in (1, 2):
        assert (
            f"fc.weight (float32 [{4 + number}]) instead of fc.weight (float32 [4]) on rank {number}" in found.summary
        )
    assert "ranks 1 and 2" not in " ".join((found.summary, *found.evidence))
    assert found.evidence[0] == "Parameters and buffers: 1 and 0 on rank 0, 1 and 0 on rank 1, 1 and 0 on rank 2."


@pytest.mark.parametrize("culprits", [(0,), (2,)], ids=str)
@pytest.mark.parametrize(
    ("odd", "tensors"),
    [
        ((TWO[1], TWO[0], TWO[2]), ("other.weight", "one.weight")),
        ((TWO[2], TWO[0], TWO[1]), ("head", "one.weight", "other.weight")),
        ((TWO[0], replace(TWO[1], dtype="bfloat16"), TWO[2]), ("other.weight",)),
    ],
    ids=["two of one shape", "shapes too", "type"],
)
def test_parameters_in_another_order_or_of_another_type(culprits, odd, tensors):
    found = the_finding(recorded(some(culprits, wraps(*odd), wraps(*TWO))))
    assert (found.code, found.culprits, found.waiting) == ("DDP404", culprits, others(culprits))
    assert found.tensors == tensors


def test_other_names_for_the_same_are_a_matter_of_taste():
    renamed = tuple(replace(one, name=f"module.{one.name}") for one in NET)
    assert ddp_setup.find(recorded(some((1,), wraps(*renamed), wraps(*NET)))) == []


def test_models_on_different_groups_or_of_different_wrappers_may_differ():
    stages = recorded(some((2, 3), wraps(*TALL, group=group(2, 3)), wraps(*NET, group=group(0, 1))))
    assert ddp_setup.find(stages) == []
    assert ddp_setup.find(recorded(some((1,), wraps(*TALL, wrapper="Other"), wraps(*NET)))) == []


def test_models_without_a_wrapper_may_differ():
    """Trained by hand: who says that they are to be alike?"""
    assert ddp_setup.find(recorded(some((1,), lambda r: r.adopts(*TALL), lambda r: r.adopts(*NET)))) == []


def test_each_model_is_compared_with_its_own():
    def make(rank):
        rank.wraps(at=WRAPPED).wraps(*(TALL if rank.rank == 1 else NET), module="Critic", at=line(4))
        return rank

    found = the_finding(recorded(make))
    assert (found.code, found.culprits, dict(found.where)[1]) == ("DDP403", (1,), line(4))
    assert "Critic" in found.summary
