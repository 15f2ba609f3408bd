"""Which ranks may still do what others have done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.facts.going_on import going_on
from tests.rules.recordings import Rank, record


@pytest.mark.parametrize(
    ("ranks", "going"),
    [
        ((Rank(0, 2).computes(), Rank(1, 2).waits("all_reduce")), {0, 1}),  # rank 0 is late, no more
        ((Rank(0, 2).finishes(), Rank(1, 2).waits("all_reduce")), set()),
        ((Rank(0, 2).finishes(), Rank(1, 2).computes()), {1}),
        ((Rank(0, 2).raises("KeyError"), Rank(1, 2).finishes()), set()),
        ((Rank(0, 2).waits("all_reduce"), Rank(1, 2).waits("barrier")), set()),
    ],
    ids=["late", "left alone", "the last one", "ended", "of two calls"],
)
def test_a_rank_goes_on_unless_it_has_ended_or_waits_for_ever(ranks, going):
    assert going_on(record(*ranks)) == going


def test_of_stacks_alone_no_later_look_says_more():
    taken = record(Rank(0, 2).computes(), Rank(1, 2).computes())
    unrecorded = {rank: replace(one, unrecorded=True) for rank, one in taken.ranks.items()}
    assert going_on(replace(taken, ranks=unrecorded)) == set()
