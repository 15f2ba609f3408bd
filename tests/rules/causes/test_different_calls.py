"""Which causes of different calls are asked for."""

from __future__ import annotations

from tests.rules.divergence.setups import found_in, recorded, some, wraps
from tests.rules.recordings import Rank, line, record
from tests.rules.training import NORMED, tensor


def test_all_is_well():
    assert found_in(recorded(wraps(*NORMED))) == found_in(record(Rank(0, 2), Rank(1, 2))) == []


def test_every_rule_is_asked():
    def make(rank):
        return wraps(tensor("a", device="meta"))(rank).converts(1, line(6), wrapped=True).hooks(str(rank.rank == 1))

    codes = [found.code for found in found_in(recorded(some((0, 1, 2, 3), make, make)))]
    assert codes == ["DDP202", "DDP416", "DDP412"]
