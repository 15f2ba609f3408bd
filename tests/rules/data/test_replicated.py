"""Inputs of tensor-parallel layers, which all ranks of a group must hold alike."""

from __future__ import annotations

import pytest

from tests.rules.recordings import Rank, diagnose, line, record

CALL = line(23)


def rank(number, *digests, of=(0, 1), world=2, shape=(8, 16)):
    made = Rank(number, world)
    for count, digest in enumerate(digests, 1):
        made.event("replicated tensor", CALL, number=count, ranks=list(of), digest=digest, shape=list(shape))
    return made.finishes()


def test_equal_inputs():
    assert diagnose(record(rank(0, "a", "b"), rank(1, "a", "b"))).findings == ()


def test_one_rank_had_no_further_one():
    assert diagnose(record(rank(0, "a", "b"), rank(1, "a"))).findings == ()


@pytest.mark.parametrize("digests", [("a", "x"), ("x", "b")])
def test_two_ranks_with_different_inputs(digests):
    (found,) = diagnose(record(rank(0, "a", "b"), rank(1, *digests))).findings
    assert (found.code, found.severity, found.certainty) == ("DDP503", "error", "proven")
    assert (found.culprits, found.sides) == ((), ((0,), (1,)))
    assert found.where == ((0, CALL), (1, CALL))
    number = 2 if digests[0] == "a" else 1
    assert found.evidence[0].startswith(f"Tensor {number} that these ranks declared replicated")


def test_one_of_four():
    ranks = [rank(r, "x" if r == 2 else "a", of=range(4), world=4) for r in range(4)]
    (found,) = diagnose(record(*ranks)).findings
    assert (found.culprits, found.waiting, found.sides) == ((2,), (0, 1, 3), ())


def test_each_of_two_groups_has_another_batch_of_its_own():
    """Two dimensions: the data-parallel groups take different batches, as they should."""
    ranks = [rank(r, "ab"[r // 2], of=(r // 2 * 2, r // 2 * 2 + 1), world=4) for r in range(4)]
    assert diagnose(record(*ranks)).findings == ()


def test_both_groups_are_named():
    ranks = [rank(r, str(r), of=(r // 2 * 2, r // 2 * 2 + 1), world=4) for r in range(4)]
    (found,) = diagnose(record(*ranks)).findings
    assert found.sides == ((0,), (1,))
    assert "Those of ranks 2 and 3 differ too." in found.evidence


def test_other_sizes_are_shown():
    (found,) = diagnose(record(rank(0, "a"), rank(1, "b", shape=(7, 16)))).findings
    assert "8 x 16 on rank 0, 7 x 16 on rank 1" in found.evidence[0]


def test_a_rank_that_is_not_in_its_group():
    """A black box may say anything."""
    assert diagnose(record(rank(0, "a"), rank(1, "b", of=(0, 7)))).findings == ()
