"""Inputs of tensor-parallel layers, which all ranks of a group must hold alike."""

from __future__ import annotations

import pytest

from tests.rules.recordings import Rank, asked, line, record

CALL = line(23)


def found(*digests, of=lambda rank: None, shape=(8, 16)):
    """``digests``: of each rank; ``of``: the group of a rank, all of them where it is None."""
    ranks = [Rank(number, len(digests)) for number in range(len(digests))]
    for rank in ranks:
        group = of(rank.rank) or range(len(digests))
        size = shape if rank.rank == 0 else (8, 16)
        for count, digest in enumerate(digests[rank.rank], 1):
            rank.event("replicated tensor", CALL, number=count, ranks=list(group), digest=digest, shape=list(size))
    return asked("DDP503", record(*(rank.finishes() for rank in ranks)))


def pair(rank):
    return rank // 2 * 2, rank // 2 * 2 + 1


@pytest.mark.parametrize(
    ("digests", "of"),
    [
        (("ab", "ab"), lambda rank: None),
        (("ab", "a"), lambda rank: None),
        (("a", "a", "b", "b"), pair),  # two dimensions: each group takes another batch, as it should
        (("a", "b"), lambda rank: (0, 1) if rank == 0 else (0, 7)),
    ],
    ids=["equal", "one has no further one", "two groups", "not in its group"],
)
def test_inputs_that_are_right(digests, of):
    assert found(*digests, of=of) == []


@pytest.mark.parametrize(("digests", "number"), [("ax", 2), ("xb", 1)])
def test_two_ranks_with_different_inputs(digests, number):
    (one,) = found("ab", digests)
    assert (one.severity, one.certainty, one.culprits, one.sides) == ("error", "proven", (), ((0,), (1,)))
    assert one.where == ((0, CALL), (1, CALL)) and one.evidence[0].startswith(f"Tensor {number} that these ranks")


def test_one_of_four():
    (one,) = found("a", "a", "x", "a")
    assert (one.culprits, one.waiting, one.sides) == ((2,), (0, 1, 3), ())


def test_a_rank_that_has_no_such_tensor_yet_may_be_on_either_side():
    (one,) = found("a", "a", "x", "")
    assert (one.culprits, one.waiting, one.sides) == ((), (), ((0, 1), (2,)))


def test_both_groups_are_named():
    (one,) = found("0", "1", "2", "3", of=pair)
    assert one.sides == ((0,), (1,)) and "Those of ranks 2 and 3 differ too." in one.evidence


def test_other_sizes_are_shown():
    (one,) = found("a", "b", shape=(7, 16))
    assert "7 x 16 on rank 0, 8 x 16 on rank 1" in one.evidence[0]
