"""The watchdog over ranks by hand, with a clock that stands still between its looks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from ddpnb.errors import WorldError
from ddpnb.ranks.observe import watchdog as module
from ddpnb.ranks.observe.watchdog import Watchdog
from ddpnb.recording.blackbox import Status
from ddpnb.recording.ending import Ending
from ddpnb.rules.diagnose import diagnose
from tests.rules.recordings import Rank, line, record

PATIENCE = 10.0
HANG = record(Rank(0, 2).waits("all_reduce", line(9)), Rank(1, 2).finishes())
BUSY = record(Rank(0, 2).waits("all_reduce", line(9)), Rank(1, 2).computes())


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Stopping:
    """``threading.Event`` in the time of the clock; set after ``limit`` seconds."""

    def __init__(self, clock, limit):
        self._clock, self._end = clock, clock.now + limit

    def wait(self, seconds):
        self._clock.sleep(seconds)
        return self._clock.now >= self._end


class Ranks:
    """Observer and processes in one: what two ranks do at a moment, counted in seconds from the start.

    ``activities``: of the running ranks. ``progress``: rank -> whether its black box changes.
    """

    def __init__(self, clock, activities, *, recordings=lambda _: BUSY, progress=lambda _rank, _at: False, waits=True):
        self._clock, self._began = clock, clock.now
        self._activities, self._recordings, self._progress, self._waits = activities, recordings, progress, waits
        self._status = {0: 0, 1: 0}
        self.endings = {}
        self.connections = lambda _: "open"
        self.silent = lambda _: {}  # hosts
        self.exits = lambda _: set()  # ranks whose processes are about to end
        self.examined = []  # when ranks were asked
        self.followed = 0
        self.looks = []
        self.progress_ns = lambda _at: 0  # what the boxes say of their last change

    @property
    def at(self):
        return self._clock.now - self._began

    def statuses(self):
        for rank in self._status:
            self._status[rank] += self._progress(rank, self.at)
        told = self.progress_ns(self.at)
        return {rank: Status(calls=calls, progress_ns=told) for rank, calls in self._status.items()}

    def follow(self):
        self.followed += 1

    def look(self):
        self.looks.append(self.at)
        return self._activities(self.at)

    def waits(self, _rank):
        return self._waits

    def ending(self, rank):
        return self.endings.get(rank)

    def exiting(self):
        return self.exits(self.at)

    def record(self, ask=True):
        if ask:
            self.examined.append(self.at)
        return self._recordings(self.at)

    @property
    def connection(self):
        return self.connections(self.at)

    def silent_hosts(self):
        return self.silent(self.at)

    def check_connection(self):
        raise WorldError(f"the connection is {self.connection}", "")


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def watch(clock, ranks, answers=None, limit=60.0, of=(0, 1), **more):
    stream = SimpleNamespace(pump=lambda: None)
    ranks.told = []  # warnings, and what is withdrawn, with the moment
    terms = {
        "judge": partial(diagnose, patience=PATIENCE, end_after_patience=more.get("end_after_patience", False)),
        "patience": PATIENCE,
        "leave_after_crash": False,
        "end_after_patience": False,
        "warn": lambda _, finding: ranks.told.append(("warn", finding.code, ranks.at)),
        "withdraw": lambda finding, _ranks, after: ranks.told.append(("withdraw", finding.code, after)),
    }
    return Watchdog(ranks, ranks, of, answers or {}, stream, Stopping(clock, limit), **terms | more).watch()


def idle(_at):
    return {0: "idle", 1: "idle"}


def test_a_run_whose_ranks_have_ended_is_over(clock):
    ranks = Ranks(clock, lambda at: {0: "computing"} if at < 3 else {}, progress=lambda _rank, _at: True)
    assert watch(clock, ranks) is BUSY
    assert ranks.at == pytest.approx(3, abs=0.1) and ranks.examined == []
    assert 10 <= ranks.followed <= 13


def test_a_hang_is_proven_twice_and_reported_soon(clock):
    ranks = Ranks(clock, lambda _: {0: "idle"}, recordings=lambda _: HANG)
    assert watch(clock, ranks) is HANG
    assert len(ranks.examined) == 2 and ranks.at < 0.5


def test_while_a_rank_exits_it_is_not_known_what_follows(clock):
    ranks = Ranks(clock, lambda at: {0: "idle"} if at < 4 else {}, recordings=lambda _: HANG)
    ranks.exits = lambda _: {1}
    assert watch(clock, ranks) is HANG
    assert ranks.at >= 4
    ranks = Ranks(clock, lambda _: {0: "idle"}, recordings=lambda _: HANG)
    ranks.exits = lambda at: {1} if at < 4 else set()
    assert watch(clock, ranks) is HANG
    assert 4 <= ranks.at < 6


def test_nothing_is_examined_while_all_ranks_make_progress_or_compute(clock):
    ranks = Ranks(clock, idle, recordings=lambda _: HANG, progress=lambda _rank, _at: True)
    assert watch(clock, ranks) is None and ranks.examined == []
    ranks = Ranks(clock, lambda _: {0: "computing", 1: "computing"}, recordings=lambda _: HANG, waits=False)
    assert watch(clock, ranks) is None and ranks.examined == []


def test_looks_are_rare_while_all_ranks_make_progress(clock):
    ranks = Ranks(clock, idle, progress=lambda _rank, at: at < 20)
    watch(clock, ranks, limit=25)
    pauses = {at: after - at for at, after in zip(ranks.looks, ranks.looks[1:], strict=False)}
    assert all(pause < 0.06 for at, pause in pauses.items() if at < module._CALM_S or at > 20.2)
    assert all(pause > 0.09 for at, pause in pauses.items() if module._CALM_S + 0.2 < at < 19.9)


def test_one_rank_that_makes_no_progress_is_enough_for_frequent_looks(clock):
    ranks = Ranks(clock, lambda _: {0: "computing", 1: "computing"}, progress=lambda rank, _at: rank == 0, waits=False)
    watch(clock, ranks, limit=20)
    assert len(ranks.looks) > 380


@pytest.mark.parametrize("calm", [False, True])
def test_how_long_a_rank_stands_still_is_counted_from_what_its_box_says(clock, calm):
    """A look sees a change only afterwards: rare looks do not make a verdict later."""
    last = 10.001 if calm else 1.001
    began = clock.now
    ranks = Ranks(
        clock,
        lambda _: {0: "idle"},
        recordings=lambda _: HANG,
        progress=lambda _rank, at: at < last + 0.05 * (1 + calm),
    )
    ranks.progress_ns = lambda at: int((began + min(at, last)) * 1e9)
    assert watch(clock, ranks) is HANG
    assert last + module._STILL_S <= ranks.examined[0] < last + module._STILL_S + 0.1


def test_a_rank_that_makes_progress_during_the_proof_refutes_it(clock):
    """Its box changes only while it is examined: between the looks it seems to stand."""
    ranks = Ranks(clock, lambda _: {0: "idle"}, recordings=lambda _: HANG)
    ranks._progress = lambda rank, at: rank == 0 and at < 20 and len(ranks.examined) % 2 == 0 and bool(ranks.examined)
    assert watch(clock, ranks) is HANG
    assert ranks.at > 20


def test_findings_that_change_between_two_recordings_are_no_proof(clock):
    other = record(Rank(0, 2).waits("barrier", line(9)), Rank(1, 2).waits("all_reduce", line(11)))
    ranks = Ranks(clock, idle, recordings=lambda at: (HANG, other)[len(ranks.examined) % 2])
    assert watch(clock, ranks) is None and len(ranks.examined) > 10


def test_ranks_that_cannot_be_proven_to_hang_are_examined_ever_more_rarely(clock):
    ranks = Ranks(clock, idle)
    assert watch(clock, ranks) is None
    pauses = [after - before for before, after in zip(ranks.examined, ranks.examined[1:], strict=False)]
    assert pauses[0] < 0.3 and pauses == sorted(pauses) and 0.9 < pauses[-1] < 1.2


@pytest.mark.parametrize(("activity", "seconds"), [("idle", module._SETTLE_S), ("computing", module._SETTLE_AT_MOST_S)])
def test_further_ranks_have_time_to_block_too(clock, activity, seconds):
    """The errors concern ranks 0 and 1; rank 2 may yet come into them."""
    three = record(Rank(0, 3).waits("all_reduce", line(9)), Rank(1, 3).finishes(), Rank(2, 3).computes())
    ranks = Ranks(clock, lambda _: {0: "idle", 2: activity}, recordings=lambda _: three, waits=False)
    ranks._status[2] = 0
    assert watch(clock, ranks, of=(0, 1, 2)) is three
    assert ranks.examined[0] + seconds < ranks.at < ranks.examined[0] + seconds + 1.2


@pytest.mark.parametrize("leave", [True, False])
def test_the_others_are_left_after_a_crash(clock, leave):
    ranks = Ranks(clock, lambda _: {1: "computing"}, progress=lambda _rank, _at: True)
    ranks.endings[0] = Ending("raised", 1)
    assert (watch(clock, ranks, leave_after_crash=leave) is BUSY) is leave
    assert ranks.at == pytest.approx(PATIENCE if leave else 60, abs=0.2)


def test_ranks_that_cannot_be_reached_are_not_examined(clock):
    ranks = Ranks(clock, idle, recordings=lambda _: HANG)
    ranks.connections = lambda at: "stopped" if at < PATIENCE - 1 else "open"
    assert watch(clock, ranks) is HANG
    assert ranks.examined[0] >= PATIENCE - 1
    ranks = Ranks(clock, idle)
    ranks.connections = lambda _: "stopped"
    with pytest.raises(WorldError, match="is stopped"):
        watch(clock, ranks)
    assert PATIENCE < ranks.at < PATIENCE + 1
    ranks = Ranks(clock, lambda _: {0: "computing"}, progress=lambda _rank, _at: True)
    ranks.connections = lambda at: "lost" if at > 1 else "open"
    with pytest.raises(WorldError, match="is lost"):
        watch(clock, ranks)


class Answered:
    def __init__(self, error=None):
        self._error = error

    def ready(self):
        return True

    def successful(self):
        return self._error is None

    def exception(self):
        return self._error


@pytest.mark.parametrize(
    ("answer", "words"),
    [(Answered(), "rank 0 is idle again"), (Answered(OSError("disk")), "rank 0 could not begin .* disk")],
    ids=["returned", "failed"],
)
def test_an_answer_without_an_ending(clock, answer, words):
    ranks = Ranks(clock, lambda _: {0: "computing"})
    with pytest.raises(RuntimeError, match=words):
        watch(clock, ranks, {0: answer})
    ranks.endings[0] = Ending("finished")
    ranks._activities = lambda at: {}
    assert watch(clock, ranks, {0: answer}) is BUSY


def test_nothing_is_concluded_while_a_host_does_not_answer(clock):
    ranks = Ranks(clock, idle, recordings=lambda _: HANG)
    ranks.silent = lambda at: {"beta": (1,)} if at < PATIENCE - 1 else {}
    assert watch(clock, ranks) is HANG
    assert ranks.examined[0] >= PATIENCE - 1


CUT_OFF = record(Rank(0, 2).computes(), Rank(1, 2).waits("all_reduce", line(9)), silent_hosts={"beta": [1]})


def test_a_host_that_does_not_answer_for_as_long_as_patience_ends_the_watch(clock):
    ranks = Ranks(clock, lambda _: {0: "computing", 1: "unknown"}, recordings=lambda _: CUT_OFF)
    ranks.silent = lambda at: {"beta": (1,)} if at > 2 else {}
    assert watch(clock, ranks, end_after_patience=True) is CUT_OFF
    assert PATIENCE + 2 < ranks.at < PATIENCE + 3


def test_a_host_that_does_not_answer_is_warned_of_once_and_ends_nothing(clock):
    ranks = Ranks(clock, lambda _: {0: "computing", 1: "unknown"}, recordings=lambda at: CUT_OFF if at > 2 else BUSY)
    ranks.silent = lambda at: {"beta": (1,)} if at > 2 else {}
    assert watch(clock, ranks) is None
    ((what, code, at),) = ranks.told
    assert (what, code) == ("warn", "DDP708") and PATIENCE + 2 < at < PATIENCE + 3
    assert len(ranks.examined) < 60


def test_a_host_that_is_heard_again_while_ranks_are_asked_is_followed_further(clock):
    ranks = Ranks(clock, idle, recordings=lambda _: BUSY if len(ranks.examined) == 1 else HANG)
    ranks.silent = lambda _: {} if ranks.examined else {"beta": (1,)}
    assert watch(clock, ranks) is HANG
    assert len(ranks.examined) == 3


def test_a_host_whose_ranks_have_all_ended_may_be_silent(clock):
    ranks = Ranks(clock, lambda at: {0: "computing"} if at < 30 else {}, progress=lambda _rank, _at: True)
    ranks.endings[1] = Ending("finished")
    ranks.silent = lambda _: {"beta": (1,)}
    assert watch(clock, ranks) is BUSY
    assert ranks.at == pytest.approx(30, abs=0.2) and ranks.examined == []


def blocked(at):
    """Rank 1 is blocked outside any collective, and rank 0 waits for it."""
    return record(Rank(0, 2).waits("all_reduce", line(9), idle=at), Rank(1, 2).idles(at, line(11)))


@pytest.mark.parametrize(
    "then", [BUSY, record(Rank(0, 2).waits("all_reduce", line(9)), Rank(1, 2).idles(1.0, line(12)))]
)
def test_a_rank_that_is_blocked_elsewhere_is_warned_of_once_and_may_go_on(clock, then):
    """After 30 s it goes on, and the run ends well."""
    ranks = Ranks(clock, lambda at: idle(at) if at < 35 else {}, recordings=lambda at: blocked(at) if at < 30 else then)
    assert watch(clock, ranks) is not None and ranks.at == pytest.approx(35, abs=0.2)
    (warned, code, at), (withdrawn, same, after) = ranks.told
    assert (warned, withdrawn, code, same) == ("warn", "withdraw", "DDP313", "DDP313")
    assert PATIENCE < at < PATIENCE + 1.5 and 29.5 < after < 32


def test_a_warning_is_withdrawn_when_all_make_progress_again(clock):
    ranks = Ranks(clock, lambda at: idle(at) if at < 25 else {}, recordings=blocked, progress=lambda _, at: at > 20)
    watch(clock, ranks)
    assert [what for what, _, _ in ranks.told] == ["warn", "withdraw"] and 19.5 < ranks.told[1][2] < 21


def test_a_warning_stands_while_its_rank_waits_in_the_same_place_though_it_seems_to_compute(clock):
    def awaited(at, computing=False):
        found = blocked(0.0 if computing else at)
        process = replace(found.ranks[1].process, waits_on="the key 'ready' of the store")
        process = replace(process, activity="computing", idle_s=0.0) if computing else process
        return replace(found, ranks={**found.ranks, 1: replace(found.ranks[1], process=process)})

    ranks = Ranks(clock, idle, recordings=lambda at: awaited(at, 20 < at < 21))
    watch(clock, ranks, limit=35)
    assert [what for what, _, _ in ranks.told] == ["warn"]


def test_a_rank_that_is_killed_while_it_is_blocked_has_not_gone_on(clock):
    ranks = Ranks(clock, lambda at: idle(at) if at < 15 else {}, recordings=blocked)
    ranks.ending = lambda rank: Ending("died", -9) if ranks.at >= 15 else None
    watch(clock, ranks)
    assert [what for what, _, _ in ranks.told] == ["warn"]


def test_patience_ends_the_watch_where_that_was_asked_for(clock):
    ranks = Ranks(clock, idle, recordings=blocked)
    assert watch(clock, ranks, end_after_patience=True) is not None
    assert PATIENCE < ranks.at < PATIENCE + 3 and ranks.told == []
