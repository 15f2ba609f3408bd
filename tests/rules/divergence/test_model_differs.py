"""Models that differ between ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.phrases import besides
from tests.rules.divergence.setups import WRAPPED, recorded, some, wraps
from tests.rules.recordings import Rank, asked, group, line, record
from tests.rules.training import NET, tensor

TALL = (tensor("fc.weight", (8, 4)), tensor("fc.bias", (8,)))
TWO = (tensor("one.weight", (4, 4)), tensor("other.weight", (4, 4)), tensor("head", (2,)))
MORE = (*NET, tensor("extra"))


def found(make, **more):
    return asked("DDP403", recorded(make, **more)) + asked("DDP404", recorded(make, **more))


@pytest.mark.parametrize("culprits", [(0,), (3,), (1, 2)], ids=str)
@pytest.mark.parametrize(
    ("code", "odd", "usual", "tensors"),
    [
        ("DDP403", TALL, NET, ("fc.weight", "fc.bias")),
        ("DDP403", MORE, NET, ("extra",)),
        ("DDP403", NET, MORE, ("extra",)),
        ("DDP403", (NET[0], replace(NET[1], trains=False)), NET, ("fc.bias",)),
        ("DDP404", (TWO[1], TWO[0], TWO[2]), TWO, ("other.weight", "one.weight")),
        ("DDP404", (TWO[2], TWO[0], TWO[1]), TWO, ("head", "one.weight", "other.weight")),
        ("DDP404", (TWO[0], replace(TWO[1], dtype="bfloat16"), TWO[2]), TWO, ("other.weight",)),
    ],
    ids=["other shapes", "one more", "one less", "frozen", "order", "order of shapes", "type"],
)
def test_models_that_differ(culprits, code, odd, usual, tensors):
    (one,) = found(some(culprits, wraps(*odd), wraps(*usual)), world=5)
    assert (one.code, one.severity, one.culprits, one.waiting) == (code, "error", culprits, besides(range(5), culprits))
    assert (one.tensors, dict(one.where)) == (tensors, dict.fromkeys(range(5), WRAPPED))


def test_three_different_models_are_each_named_with_their_ranks():
    taken = record(*(Rank(n, 3).wraps(tensor("fc.weight", (4 + n,)), at=WRAPPED) for n in range(3)))
    (one,) = asked("DDP403", taken)
    assert (one.culprits, one.sides) == ((), ((0,), (1,), (2,)))
    for number in (1, 2):
        assert (
            f"fc.weight (float32 [{4 + number}]) instead of fc.weight (float32 [4]) on rank {number}" in one.evidence[0]
        )
    assert one.evidence[1] == "Parameters and buffers: 1 and 0 on rank 0, 1 and 0 on rank 1, 1 and 0 on rank 2."


@pytest.mark.parametrize(
    "make",
    [
        wraps(*NET),
        some((1,), wraps(*(replace(one, name=f"module.{one.name}") for one in NET)), wraps(*NET)),
        some((2, 3), wraps(*TALL, group=group(2, 3)), wraps(*NET, group=group(0, 1))),
        some((1,), wraps(*TALL, wrapper="Other"), wraps(*NET)),
        some((1,), lambda r: r.adopts(*TALL), lambda r: r.adopts(*NET)),
    ],
    ids=["alike", "other names", "other groups", "other wrappers", "without a wrapper"],
)
def test_models_that_may_differ(make):
    assert found(make) == []


def test_each_model_is_compared_with_its_own():
    def make(rank):
        return rank.wraps(at=WRAPPED).wraps(*(TALL if rank.rank == 1 else NET), module="Critic", at=line(4))

    (one,) = found(make)
    assert (one.culprits, dict(one.where)[1], "Critic" in one.summary) == ((1,), line(4), True)


def test_models_of_one_number_are_compared_in_their_group():
    """Two halves of a job that have nothing in common."""

    def make(rank):
        return rank.wraps(*(TALL if rank.rank in (1, 3) else NET), group=group(0, 1) if rank.rank < 2 else group(2, 3))

    assert [one.sides for one in found(make)] == [((0,), (1,)), ((2,), (3,))]


@pytest.mark.parametrize(("known", "culprits"), [((0, 1, 2), ()), ((0, 1, 2, 3), (0,))], ids=str)
def test_a_rank_that_has_wrapped_nothing_yet_may_be_on_either_side(known, culprits):
    ranks = [Rank(n) for n in range(4)]
    for number in known:
        ranks[number].wraps(*(NET if number else TALL))
    (one,) = asked("DDP403", record(*ranks))
    assert one.culprits == culprits
