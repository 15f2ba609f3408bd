"""A host that does not answer: nothing is said of its ranks, and nothing else is concluded."""

from __future__ import annotations

import pytest

from tests.rules.recordings import Rank, diagnose, line, only_finding, record

SILENT = {"beta": [2, 3]}


def ranks(size=4):
    for number in range(size):
        rank = Rank(number, size).joins().calls("all_reduce", line(5))
        yield rank.waits("all_reduce", line(5)) if number < 2 else rank


def test_the_host_is_named_and_who_waits_for_it():
    found = only_finding(record(*ranks(), silent_hosts=SILENT))
    assert (found.code, found.culprits, found.waiting, found.certainty) == ("DDP708", (), (0, 1), "timed")
    assert found.collective.title == "all_reduce #2"
    assert [rank for rank, _ in found.where] == [0, 1]


def test_without_it_the_same_ranks_say_nothing():
    assert "DDP708" not in [found.code for found in diagnose(record(*ranks())).findings]


def test_two_hosts():
    found = only_finding(record(*ranks(), silent_hosts={"beta": [2], "gamma": [3]}))
    assert found.summary.startswith("Host beta (rank 2) and host gamma (rank 3) do not answer")


@pytest.mark.parametrize("told", [None, 7, "beta", {"beta": 7}, {}])
def test_what_is_no_host_is_none(told):
    assert "DDP708" not in [found.code for found in diagnose(record(*ranks(), silent_hosts=told)).findings]


def test_ranks_that_do_not_exist_are_left_out():
    found = only_finding(record(*ranks(), silent_hosts={"beta\x1b[31m": [2, 77, "x"]}))
    assert "rank 2)" in found.summary and "\x1b" not in found.summary
