from __future__ import annotations

import dataclasses

from ddpnb.recording.account import Account
from ddpnb.recording.timing.scaling import compare
from ddpnb.render.scaling import scaling
from tests.render.accounts import rank


def account(size: int, pace: float | None) -> Account:
    return Account(tuple(rank(n, steps_per_s=pace) for n in range(size)))


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line[:5].strip().isdigit()]


def test_a_row_per_world_size():
    text = scaling(compare([(1, account(1, 10), "ok", 3.0), (2, account(2, 8), "ok", 4.0)]), cores=4)
    assert rows(text)[0][:8] == ["1", "3.0", "s", "10", "1.00", "100", "%", "50"]
    assert rows(text)[1][:8] == ["2", "4.0", "s", "8", "1.60", "80", "%", "50"]
    assert "take turns" not in text


def test_a_run_that_failed_says_how():
    text = scaling(compare([(1, account(1, 10), "ok", 3.0), (2, account(2, None), "hang", 4.0)]))
    assert rows(text)[1][3:6] == ["-", "-", "-"]
    assert rows(text)[1][-1] == "hang"


def test_without_steps_only_the_time_is_told():
    text = scaling(compare([(1, account(1, None), "ok", 3.0), (2, account(2, None), "ok", 4.0)]))
    assert "No optimizer steps" in text
    assert "Speed-up counts" not in text


def test_ranks_that_take_turns_are_said():
    text = scaling(compare([(n, account(n, 10), "ok", 1.0) for n in (1, 2, 3, 4)]), cores=2)
    assert "2 cores: from 3 ranks on" in text


def test_accounts_may_be_empty():
    empty = dataclasses.replace(account(1, None), ranks=())
    assert rows(scaling(compare([(1, empty, "crash", 0.0)])))[0][-1] == "crash"
