"""Models, hooks, conversions and optimizers of which nothing is wrong."""

from __future__ import annotations

from ddpnb.diagnosis.divergence import ddp_setup
from tests.diagnosis.divergence.setups import recorded, wraps
from tests.diagnosis.recordings import Rank, record
from tests.diagnosis.training import NORMED


def test_all_is_well():
    assert ddp_setup.find(recorded(wraps(*NORMED))) == []
    assert ddp_setup.find(record(Rank(0, 2), Rank(1, 2))) == []
