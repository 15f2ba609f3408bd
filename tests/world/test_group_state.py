"""Whether an interrupt has left the process groups as they were, from what each rank tells of its own."""

from __future__ import annotations

import pytest

from ddpnb.recording.verbs import Group, GroupCounts, Groups, answered
from ddpnb.world.group_state import ClosedGroup, shared_by_all, untouched


def told(rank, calls=3, *, size=2, messages=(), returned=(), ranks=(0, 1), **more):
    counts = (GroupCounts(key="0,1#0", ranks=ranks, calls=calls, returned=returned, messages=messages),)
    own = {"size": size, "rank": rank, "backend": "gloo", "timeout_s": 60.0, "counts": counts}
    return Groups(**own | more)


def states(*answers):
    return dict(enumerate(answers))


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
        None,
    ],
)
def test_else_the_groups_are_closed(other):
    assert not untouched(states(told(0), other), 2)


@pytest.mark.parametrize("messages", [[3], [["send", "x", 0, 1]], [["send", 1, 0]]])
def test_what_a_rank_tells_is_as_declared(messages):
    counts = {"key": "0,1#0", "ranks": [0, 1], "calls": 3, "messages": messages}
    assert answered(Group(), {"facts": {"counts": [counts]}}).error


def test_what_uses_groups_is_bounded():
    users = tuple(str(number) * 1000 for number in range(10_000))
    found = shared_by_all(states(told(0, users=users), told(1)), 2)
    assert found is not None and len(found.users) == 16 and len(found.users[0]) == 120


def test_a_group_that_can_be_created_again_is_that_of_all_ranks():
    assert shared_by_all(states(told(0), told(1, users=("T (its g)",))), 2) == ClosedGroup("gloo", 60.0, ("T (its g)",))
    left = {0: told(0), 2: told(1)}  # one that counts itself otherwise
    assert shared_by_all(left, 2) is None and shared_by_all({**left, 1: None}, 3) is None
    assert shared_by_all(states(told(0), told(1, backend="nccl")), 2) is None
    assert shared_by_all(states(told(0, size=1), told(1, size=1)), 2) is None and shared_by_all({}, 2) is None
