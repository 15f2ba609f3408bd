"""Probes at the same time: the answers and their order are those of one after the other."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from ddpnb.bisection.command import CommandSpace
from ddpnb.bisection.failure import Failure
from ddpnb.bisection.search import Search
from ddpnb.bisection.varied import Trying
from ddpnb.control.bisecting import Bisection
from ddpnb.control.probing import Job, Prober, Ran
from ddpnb.errors import ProbeEnded

HANG = Failure("DDP301", frozenset({("train.py", 7, "main")}), summary="rank 1 is missing")
LETTERS = "abcdefgh"


class Started:
    """A probe that is over after some looks at it."""

    def __init__(self, ran: Ran, looks: int) -> None:
        self._ran, self._looks = ran, looks
        self.closed = False

    def poll(self) -> bool:
        self._looks -= 1
        return self._looks <= 0

    def wait(self) -> Ran:
        self.close()
        return self._ran

    def close(self) -> None:
        self.closed = True


class Probes(Prober):
    """Fails with --c and --f; each probe takes its time."""

    def __init__(self, jobs: int, seed: int = 0) -> None:
        super().__init__(Job(jobs=jobs))
        self.all: list[Started] = []
        self.most, self.looks = 0, 3
        self._chance = random.Random(seed)

    def start(self, trying: Trying) -> Any:
        ran = Ran((HANG,)) if {"--c", "--f"} <= set(trying.command) else Ran()
        self.all.append(Started(ran, self._chance.randint(self.looks // 3, self.looks)))
        self.most = max(self.most, sum(not one.closed for one in self.all))
        return self.all[-1]

    def run(self, trying: Trying) -> Ran:
        return self.start(trying).wait()


def bisection(jobs: int, seed: int = 0, repeat: int | None = 1) -> tuple[Bisection, Probes]:
    space, probes = CommandSpace(["train.py", *(f"--{one}" for one in LETTERS)]), Probes(jobs, seed)
    return Bisection(space, Search(space.space, repeat), probes), probes


@pytest.mark.parametrize("jobs", [2, 3, 8])
@pytest.mark.parametrize("seed", range(5))
def test_the_probes_that_are_asked_for_are_those_of_one_job(jobs, seed):
    alone, _ = bisection(1)
    several, probes = bisection(jobs, seed)
    assert several.run() == alone.run()
    assert [one.probe for one in several.trials if one.asked] == [one.probe for one in alone.trials]
    assert probes.most == jobs
    assert all(one.closed for one in probes.all)


def test_answers_that_were_not_needed_are_kept():
    found, probes = bisection(8)
    found.run()
    kept = [one for one in found.trials if not one.asked]
    assert kept
    assert found.trials[-len(kept) :] == tuple(kept)
    assert len(probes.all) >= len(found.trials)
    log = found.search.to_json()
    assert log["trials"][-1]["asked"] is False
    assert "asked" not in log["trials"][0]
    again = Search.from_json(log)
    assert (again.trials, again.result) == (found.search.trials, found.result)


def test_where_it_does_not_always_fail_the_same_is_tried_at_the_same_time():
    found, probes = bisection(4, repeat=4)
    assert found.run().minimal == ("--c", "--f")
    assert probes.most == 4
    good = [one.probe for one in found.trials if one.asked and one.answer == "good"]
    assert all(good.count(probe) == 4 for probe in good)


def test_an_interrupt_ends_all_and_keeps_what_is_known():
    found, probes = bisection(4)

    def interrupt(_):
        if len(found.trials) == 3:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        found.run(interrupt)
    assert found.result is None
    assert all(one.closed for one in probes.all)
    assert found.run().minimal == ("--c", "--f")


def test_probes_at_the_same_time_are_ended():
    found, probes = bisection(4)
    probes.looks = 1_000_000
    probes.stop()
    with pytest.raises(ProbeEnded):
        found.run()
    assert len(probes.all) == 4 and all(one.closed for one in probes.all)
    assert not found.trials
    probes.looks = 3
    assert found.run().outcome == "found"
