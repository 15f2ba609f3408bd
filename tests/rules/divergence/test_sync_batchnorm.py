"""BatchNorm that is converted too late, or on some ranks only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.rules.divergence import ddp_setup
from tests.rules.divergence.setups import WRAPPED, others, recorded, some, the_finding, wraps
from tests.rules.recordings import Rank, line, record
from tests.rules.training import NORMED

SYNCED = tuple(replace(one, kind="SyncBatchNorm") if one.kind else one for one in NORMED)


def test_a_conversion_that_a_rank_has_forgotten_is_not_missing():
    make = some((2,), lambda r: wraps()(r).forgets_events(3), lambda r: wraps()(r.converts(1, line(2))))
    assert ddp_setup.find(recorded(make)) == []


@pytest.mark.parametrize("culprits", [(0,), (0, 1, 2, 3)], ids=str)
def test_converted_after_wrapping(culprits):
    taken = recorded(some(culprits, lambda r: wraps(*NORMED)(r).converts(2, line(6), wrapped=True), wraps(*NORMED)))
    found = the_finding(taken)
    assert (found.code, found.culprits) == ("DDP412", culprits)
    assert found.where == tuple((number, line(6)) for number in culprits)


def test_the_module_inside_the_wrapper_is_converted():
    """model.module = convert_sync_batchnorm(model.module): it is not the wrapper that is given."""
    assert the_finding(recorded(lambda r: wraps(*NORMED)(r).converts(2, line(6)))).culprits == (0, 1, 2, 3)


@pytest.mark.parametrize("culprits", [(0,), (2,)], ids=str)
def test_converted_on_some_ranks(culprits):
    taken = recorded(some(culprits, lambda r: wraps(*SYNCED)(r.converts(1, line(2))), wraps(*NORMED)))
    found = the_finding(taken)
    assert (found.code, found.culprits, found.waiting) == ("DDP412", culprits, others(culprits))
    assert dict(found.where)[culprits[0]] == line(2)
    assert dict(found.where)[others(culprits)[0]] == WRAPPED


def test_converted_on_each_rank_to_another_extent():
    ranks = [wraps(*NORMED)(Rank(n, 3).converts(n, line(2))) for n in range(3)]
    found = the_finding(record(*ranks))
    assert (found.code, found.culprits, found.sides) == ("DDP412", (), ((0,), (1,), (2,)))
    assert "0 on rank 0, 1 on rank 1, 2 on rank 2" in found.summary


def test_converted_before_wrapping_on_all_ranks():
    assert ddp_setup.find(recorded(lambda r: wraps(*SYNCED)(r.converts(1, line(2))))) == []


def test_a_second_model_that_is_converted_and_then_wrapped():
    def make(rank):
        return wraps(*SYNCED, module="Critic")(wraps(*SYNCED)(rank.converts(1)).converts(1))

    assert ddp_setup.find(recorded(make)) == []


def test_converted_and_never_wrapped():
    """Nobody wraps anything: a model that is trained by hand, or only looked at."""
    assert ddp_setup.find(recorded(lambda r: r.converts(1))) == []
