"""BatchNorm that is converted too late, or on some ranks only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.phrases import besides
from tests.rules.divergence.setups import WRAPPED, recorded, some, wraps
from tests.rules.recordings import Rank, asked, line, record
from tests.rules.training import NORMED

SYNCED = tuple(replace(one, kind="SyncBatchNorm") if one.kind else one for one in NORMED)


def found(make):
    return asked("DDP412", recorded(make))


@pytest.mark.parametrize("culprits", [(0,), (0, 1, 2, 3)], ids=str)
@pytest.mark.parametrize("facts", [{"wrapped": True}, {}], ids=["the wrapper", "the module inside of it"])
def test_converted_after_wrapping(culprits, facts):
    (one,) = found(some(culprits, lambda r: wraps(*NORMED)(r).converts(2, line(6), **facts), wraps(*NORMED)))
    assert (one.severity, one.culprits, one.where) == ("error", culprits, tuple((rank, line(6)) for rank in culprits))


@pytest.mark.parametrize("culprits", [(0,), (2,)], ids=str)
def test_converted_on_some_ranks(culprits):
    (one,) = found(some(culprits, lambda r: wraps(*SYNCED)(r.converts(1, line(2))), wraps(*NORMED)))
    rest = besides(range(4), culprits)
    assert (one.culprits, one.waiting) == (culprits, rest)
    assert (dict(one.where)[culprits[0]], dict(one.where)[rest[0]]) == (line(2), WRAPPED)


def test_converted_on_each_rank_to_another_extent():
    (one,) = asked("DDP412", record(*(wraps(*NORMED)(Rank(n, 3).converts(n, line(2))) for n in range(3))))
    assert one.sides == ((0,), (1,), (2,)) and "0 on rank 0, 1 on rank 1, 2 on rank 2" in one.summary


@pytest.mark.parametrize(
    "make",
    [
        lambda r: wraps(*SYNCED)(r.converts(1, line(2))),
        lambda r: wraps(*SYNCED, module="Critic")(wraps(*SYNCED)(r.converts(1)).converts(1)),
        lambda r: r.converts(1),
        some((2,), lambda r: wraps()(r).forgets_events(3), lambda r: wraps()(r.converts(1, line(2)))),
    ],
    ids=["before, on all", "a second model", "never wrapped", "forgotten"],
)
def test_conversions_that_are_right(make):
    assert found(make) == []


@pytest.mark.parametrize("named", [True, False], ids=["layers", "conversions"])
def test_a_rank_that_converts_its_second_model_later(named):
    ranks = [wraps(*(SYNCED if named else NORMED))(Rank(n, 2).converts(1)) for n in range(2)]
    wraps(*(SYNCED if named else NORMED), module="Critic")(ranks[0].converts(1))
    assert asked("DDP412", record(*ranks)) == []
    wraps(*NORMED, module="Critic")(ranks[1])
    assert [one.sides for one in asked("DDP412", record(*ranks))] == [((0,), (1,))]


@pytest.mark.parametrize(("known", "culprits"), [(3, ()), (4, (0,))])
def test_a_rank_that_has_wrapped_nothing_yet_may_be_on_either_side(known, culprits):
    ranks = [wraps(*(NORMED if n else SYNCED))(Rank(n)) for n in range(known)]
    (one,) = asked("DDP412", record(*ranks, *(Rank(n) for n in range(known, 4))))
    assert one.culprits == culprits
