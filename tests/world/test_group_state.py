"""Whether an interrupt has left the process groups as they were, from what each rank tells of its own."""

from __future__ import annotations

import pytest

from ddpnb.recording.verbs import GroupCounts, Groups
from ddpnb.world.group_state import ClosedGroup, read, shared_by_all, untouched


def told(rank, calls=3, *, size=2, messages=(), returned=(), ranks=(0, 1), **more):
    counts = (GroupCounts(key="0,1#0", ranks=ranks, calls=calls, returned=returned, messages=messages),)
    own = {"size": size, "rank": rank, "backend": "gloo", "timeout_s": 60.0, "counts": counts}
    return Groups(**own | more)


def states(*answers):
    return {rank: read(answer) for rank, answer in enumerate(answers)}


def test_ranks_that_have_come_equally_far_can_go_on():
    assert untouched(states(told(0), told(1)), 2)
    sent = told(0, messages=[["send", 1, 7, 2]])
    assert untouched(states(sent, told(1, messages=[["recv", 0, 7, 2]])), 2)
    assert untouched(states(sent, told(1, messages=[["recv_any_source", -1, 7, 2]])), 2)
    assert untouched(states(told(0, size=0, counts=()), told(1, size=0, counts=())), 2)  # no group


@pytest.mark.parametrize(
    "other",
    [
        told(1, calls=2),  # gloo has sent a broadcast already: the next call would receive it
        told(1, messages=[["recv", 0, 7, 1]]),
        told(1, messages=[["recv_any_source", -1, 7, 1]]),
        told(1, returned=(2,)),
        told(1, torn=True),
        told(1, closed=True),
        told(1, size=0),
        told(1, counts=()),
        Groups(error="no"),
        None,
    ],
)
def test_else_the_groups_are_closed(other):
    assert not untouched(states(told(0), other), 2)


def test_what_a_rank_tells_is_bounded():
    assert read(told(0, messages=[3])) is None and read(told(0, messages=[["send", "x", 0, 1]])) is None
    found = read(told(0, users=("x" * 10_000,) * 10_000, backend="g" * 10_000))
    assert found is not None and len(found.users) == 16 and len(found.users[0]) == len(found.backend) == 120


def test_a_group_that_can_be_created_again_is_that_of_all_ranks():
    assert shared_by_all(states(told(0), told(1, users=("T (its g)",))), 2) == ClosedGroup("gloo", 60.0, ("T (its g)",))
    left = {0: read(told(0)), 2: read(told(1))}  # one that counts itself otherwise
    assert shared_by_all(left, 2) is None and shared_by_all({**left, 1: None}, 3) is None
    assert shared_by_all(states(told(0), told(1, backend="nccl")), 2) is None
    assert shared_by_all(states(told(0, size=1), told(1, size=1)), 2) is None and shared_by_all({}, 2) is None
