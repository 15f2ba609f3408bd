"""Models, hooks, conversions and optimizers of which nothing is wrong."""

from __future__ import annotations

from ddpnb.rules.divergence import ddp_setup
from tests.rules.divergence.setups import recorded, wraps
from tests.rules.recordings import Rank, record
from tests.rules.training import NORMED


def test_all_is_well():
    assert ddp_setup.find(recorded(wraps(*NORMED))) == []
    assert ddp_setup.find(record(Rank(0, 2), Rank(1, 2))) == []
