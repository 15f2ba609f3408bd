"""Which GPUs reach each other's memory, from what a rank has asked torch."""

from __future__ import annotations

from ddpnb.world.measurements import _peers


def test_all_of_them():
    check = _peers({"0": [1], "1": [0]})
    assert (check.state, check.told, check.section) == ("ok", "between all 2 GPUs", "GPUs")


def test_pairs_that_do_not():
    check = _peers({"0": [1], "1": [0], "2": []})
    assert (check.state, check.code) == ("warning", "DDP207") and check.told == "none between 0-2, 1-2" and check.todo


def test_many_pairs_are_counted():
    assert _peers({str(number): [] for number in range(8)}).told.endswith("and 20 more pairs")
