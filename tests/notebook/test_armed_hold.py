"""The holds of a dashboard: which ranks each of them holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.notebook.armed_hold import ArmedHold, with_ranks
from ddpnb.recording.calls import CallState, Site
from ddpnb.recording.holds import Hold
from ddpnb.world.breakpoints import Holding
from tests.rules.recordings import Rank, record


def armed(ranks=(0, 1), on=True, **hold):
    return ArmedHold(Holding(Hold(**hold), ranks, None), on)


def stopped(rank, line, kind="line", function="step"):
    at = Site("/w/train.py", line, function)
    return record(Rank(rank, 3).computes().phase("held", "open", at, kind=kind)).ranks[rank]


def held(*holds, **ranks):
    known = record(*(Rank(number, 3).computes() for number in range(3)))
    known = replace(known, ranks={**known.ranks, **{int(name[1:]): one for name, one in ranks.items()}})
    return [ranks for _, ranks in with_ranks(holds, known)]


def test_a_line_holds_the_ranks_that_stand_there():
    holds = armed(line="train.py:4"), armed(line="step()"), armed(line="train.py:9"), armed(line="train.py:4", on=False)
    assert held(*holds, r0=stopped(0, 4), r1=stopped(1, 7)) == [(0,), (1,), (), ()]
    assert held(armed(line="train.py:4", ranks=(1,)), r0=stopped(0, 4)) == [()]
    assert held(armed(line="train.py:4"), armed(exception=True), r0=stopped(0, 4, "exception")) == [(), (0,)]


def test_before_a_call_only_the_one_hold_that_it_can_be_is_said():
    known = record(Rank(0, 3).calls("all_reduce", state=CallState.HELD)).ranks[0]
    assert held(armed(before=("all_reduce",)), armed(line="train.py:4"), r0=known) == [(0,), ()]
    assert held(armed(before=("all_reduce",)), armed(), r0=known) == [(), ()]


def test_nothing_is_known_without_a_moment():
    assert [ranks for _, ranks in with_ranks([armed()], None)] == [()]


@pytest.mark.parametrize(("line", "at"), [("train.py:4", 4), ("w/train.py:4", 4), ("other.py:4", 0), ("step()", 0)])
def test_it_is_the_hold_of_a_line(line, at):
    assert [number for number in range(9) if armed(line=line).is_at("/w/train.py", number)] == ([at] if at else [])
