from __future__ import annotations

import pytest

from ddpnb.recording.account import Account, RankAccount
from ddpnb.recording.timing.scaling import compare


def account(*paces: float | None) -> Account:
    return Account(tuple(RankAccount(rank, steps_per_s=pace) for rank, pace in enumerate(paces)))


def told(*runs: tuple) -> list[tuple]:
    return [
        (one.size, one.efficiency and round(one.efficiency, 3), one.speed_up and round(one.speed_up, 3))
        for one in compare([(size, found, outcome, 1.0) for size, found, outcome in runs])
    ]


def test_the_pace_is_compared_with_that_of_the_fewest_ranks():
    runs = [(4, account(9, 6, 9, 9), "ok"), (1, account(12), "ok"), (2, account(12, 11.4), "ok")]
    assert told(*runs) == [(1, 1.0, 1.0), (2, 0.95, 1.9), (4, 0.5, 2.0)]


def test_the_fewest_need_not_be_one():
    assert told((2, account(10, 10), "ok"), (8, account(*[5] * 8), "ok")) == [(2, 1.0, 2.0), (8, 0.5, 4.0)]


@pytest.mark.parametrize("outcome", ["hang", "crash", "divergence"])
def test_a_run_that_failed_is_no_measure(outcome):
    runs = [(1, account(12), outcome), (2, account(10, 10), "ok"), (4, account(5, 5, 5, 5), "ok")]
    assert told(*runs) == [(1, None, None), (2, 1.0, 2.0), (4, 0.5, 2.0)]


def test_without_steps_there_is_nothing_to_compare():
    assert told((1, account(None), "ok"), (2, account(None, None), "ok")) == [(1, None, None), (2, None, None)]
    assert told((1, account(12), "ok"), (2, Account(), "ok")) == [(1, 1.0, 1.0), (2, None, None)]
    assert compare([]) == ()
