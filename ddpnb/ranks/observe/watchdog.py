"""Watchdog: detects when the outcome of a run is known, because it has ended or provably hangs.

Progress is read from the black boxes, which costs the ranks nothing; ranks are asked only when they make none.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence

from ddpnb.ranks.observe.observer import Observer
from ddpnb.ranks.observe.output import Stream
from ddpnb.ranks.rank_processes import Answer, RankView
from ddpnb.recording.blackbox import Status
from ddpnb.recording.events.startup import Joining, NewGroup
from ddpnb.recording.findings import Diagnosis, Finding
from ddpnb.recording.recording import Activity, Recording
from ddpnb.texts import shortened

_TICK_S = 0.05
_CALM_TICK_S, _CALM_S = 0.1, 2.0  # while all ranks make progress, and have done so for a while: they need the cores
_FOLLOW_S = 0.25  # between two reads of the digests of the replicas
_STILL_S = 0.12  # without progress for this long: examine the ranks
_SETTLE_S = 0.6  # time for further ranks to block, so that the diagnosis covers them too
_SETTLE_AT_MOST_S = 2.0  # the same for ranks that still compute
_PAUSE_AT_MOST_S = 1.0  # between two examinations of blocked ranks
_MOVES_S = (
    0.5  # all ranks make progress for so long: none is blocked. A rank that waits may seem to compute for a moment
)


#: what was said, since when its ranks were blocked, and where
_Warning = tuple[Finding, float, Mapping[int, object]]


class Watchdog:
    """Monitors the ranks of one run until its outcome is known.

    Args:
        processes: of the ranks.
        observer: of the run.
        ranks: those that are in the run.
        answers: to the requests that began the run.
        stream: shows the output.
        stopping: set to stop.
        judge: the diagnosis of a Recording.
        patience: seconds that a rank may be blocked outside any collective.
        leave_after_crash: wait no longer than ``patience`` for the others once a rank has failed.
        end_after_patience: a finding that only patience supports is an outcome too.
        warn: called with each such finding once, and the Recording that it is from, if it is none.
        withdraw: called with one whose ranks have continued, with these ranks, and after how many seconds.
    """

    def __init__(
        self,
        processes: RankView,
        observer: Observer,
        ranks: Sequence[int],
        answers: Mapping[int, Answer],
        stream: Stream,
        stopping: threading.Event,
        *,
        judge: Callable[[Recording], Diagnosis],
        patience: float,
        leave_after_crash: bool,
        end_after_patience: bool,
        warn: Callable[[Recording, Finding], object],
        withdraw: Callable[[Finding, tuple[int, ...], float], object],
    ) -> None:
        self._processes = processes
        self._observer = observer
        self._ranks = ranks
        self._answers = answers
        self._stream = stream
        self._stopping = stopping
        self._judge = judge
        self._patience = patience
        self._leave_after_crash = leave_after_crash
        self._end_after_patience = end_after_patience
        self._warn, self._withdraw = warn, withdraw
        # What was warned of, and since when the ranks were blocked; None: it was withdrawn.
        self._warned: dict[tuple[object, ...], _Warning | None] = {}
        self._statuses: dict[int, Status] = {}
        self._changed: dict[int, float] = {}  # when the black box of each rank last changed
        # The last look, and the last at which a rank made no progress.
        self._looked_at = self._uncalm_at = time.monotonic()
        self._next_follow = 0.0
        self._crashed_at: float | None = None
        self._stopped_at: float | None = None  # when the connection was stopped, while no rank makes progress
        self._silent_at: float | None = None  # since when a host is silent

    def watch(self) -> Recording | None:
        """The Recording for the diagnosis; None if ``stopping`` was set before.

        Raises:
            WorldError: the connection to the ranks is lost, or stopped while no rank makes progress: nothing can be
                proven.
        """
        next_proof, pause, running = 0.0, _STILL_S, frozenset[int]()
        stopped_at: dict[int, float] = {}  # by rank: its last progress when it was last seen without any
        proven_at: float | None = None
        still_at = time.monotonic()
        self._statuses = self._observer.statuses()
        self._changed = dict.fromkeys(self._ranks, time.monotonic())
        while not self._stopping.wait(self._tick_s):
            now = time.monotonic()
            activities = self._look(now)
            if not activities:
                self._withdraw_but(())
                return self._observer.record(ask=False)
            self._check_answers(activities)
            if self._leave_after_crash and self._crashed_at is not None and now - self._crashed_at > self._patience:
                return self._observer.record()
            if self._is_cut_off(activities, now):
                if now - (self._silent_at or now) > self._patience and now >= next_proof:
                    next_proof = now + _PAUSE_AT_MOST_S
                    recording = self._observer.record()
                    if recording.host.get("silent_hosts"):  # not heard again while it was taken
                        if self._end_after_patience:
                            return recording
                        for finding in _doubts(self._judge(recording)).values():
                            self._tell(recording, finding)
                continue
            still = self._still(activities, now)
            if still:
                still_at = now
            elif now - still_at > _MOVES_S:
                self._withdraw_but(())
            known = {**stopped_at, **{rank: self._changed[rank] for rank in still}}
            # A question costs a rank work, so that it may seem to compute for a moment: that is no reason to ask at once.
            if known != stopped_at or running != frozenset(activities):
                stopped_at, running, pause = known, frozenset(activities), _STILL_S
                next_proof = min(next_proof, now)
            if not self._reachable(set(activities) <= still) or not still or now < next_proof:
                continue
            proof = self._prove()
            if proof is None:
                pause = min(_PAUSE_AT_MOST_S, pause * 1.5)
                next_proof = time.monotonic() + pause
                continue
            recording, diagnosis = proof
            proven_at = proven_at or now
            others = set(activities) - _concerned(diagnosis)
            computing = any(activities[rank] == "computing" for rank in others)
            if not others or now - proven_at > (_SETTLE_AT_MOST_S if computing else _SETTLE_S):
                return recording
        return None

    @property
    def _tick_s(self) -> float:
        return _CALM_TICK_S if self._looked_at - self._uncalm_at > _CALM_S else _TICK_S

    def _look(self, now: float) -> dict[int, Activity]:
        """Show new output, note which ranks make progress; what the running ranks do."""
        self._stream.pump()
        statuses = self._observer.statuses()
        changed = {rank for rank in self._ranks if statuses[rank] != self._statuses[rank]}
        self._changed |= {rank: self._when_changed(rank, statuses[rank], now) for rank in changed}
        self._statuses = statuses
        if now >= self._next_follow:
            self._observer.follow()
            self._next_follow = now + _FOLLOW_S
        activities = self._observer.look()
        self._looked_at = now
        if not changed.issuperset(activities):
            self._uncalm_at = now
        endings = map(self._observer.ending, self._ranks)
        if self._crashed_at is None and any(ending is not None and not ending.well for ending in endings):
            self._crashed_at = now
        return activities

    def _when_changed(self, rank: int, status: Status, now: float) -> float:
        """When a rank whose black box has changed since the last look made progress."""
        if status.progress_ns == self._statuses[rank].progress_ns:
            return now
        return min(now, max(self._looked_at, status.progress_ns * 1e-9))

    def _still(self, activities: Mapping[int, Activity], now: float) -> frozenset[int]:
        """The ranks that make no progress, and do not compute outside any call."""
        return frozenset(
            rank
            for rank, activity in activities.items()
            if now - self._changed[rank] >= _STILL_S and (activity != "computing" or self._observer.waits(rank))
        )

    def _reachable(self, all_still: bool) -> bool:
        """Whether ranks can be asked. If not, a missing answer says nothing about them.

        Raises:
            WorldError: the connection is lost, or has been stopped for ``patience`` seconds while no rank makes progress.
        """
        state = self._processes.connection
        if state == "lost" and any(self._observer.ending(rank) is None for rank in self._ranks):
            self._processes.check_connection()
        if state != "stopped" or not all_still:
            self._stopped_at = None
            return state == "open"
        self._stopped_at = self._stopped_at or time.monotonic()
        if time.monotonic() - self._stopped_at > self._patience:
            self._processes.check_connection()
        return False

    def _is_cut_off(self, running: Container[int], now: float) -> bool:
        """Whether a host with running ranks is silent: nothing can be proven of these, nor of those that wait for them."""
        if not any(rank in running for ranks in self._processes.silent_hosts().values() for rank in ranks):
            self._silent_at = None
            return False
        self._silent_at = self._silent_at or now
        return True

    def _prove(self) -> tuple[Recording, Diagnosis] | None:
        """A Recording that proves that the run cannot continue, with its diagnosis; None if it may continue.

        The proof must hold twice, without progress on the ranks concerned in between: several processes cannot be
        read at one moment.
        """
        before = self._observer.statuses()
        recording = self._observer.record()
        first = self._judge(recording)
        self._withdraw_but(_doubts(first), recording)
        if not (first.settled and first.errors) and not _doubts(first):
            return None
        time.sleep(_STILL_S / 2)
        recording = self._observer.record()
        second = self._judge(recording)
        if not (second.settled and second.errors) and not _doubts(second):
            return None
        after = self._observer.statuses()
        moved = {rank for rank in before if before[rank] != after[rank]}
        running = [rank for rank in self._ranks if self._observer.ending(rank) is None]
        if not self._reachable(False) or self._is_cut_off(running, time.monotonic()):
            return None  # the connection was lost or stopped meanwhile: no rank could answer
        for about in _doubts(first).keys() & _doubts(second).keys():
            finding = _doubts(second)[about]
            if moved.isdisjoint(finding.concerned):
                self._tell(recording, finding)
        if not second.settled or not second.errors or not moved.isdisjoint(_concerned(second)):
            return None
        if not self._observer.exiting().isdisjoint(_concerned(second)):
            return None  # who has started it may act on its status
        return (recording, second) if _what(first) == _what(second) else None

    def _tell(self, recording: Recording, finding: Finding) -> None:
        """Warn of a finding that is not proven, once."""
        if _about(finding) not in self._warned:
            since = min((self._changed[rank] for rank in finding.concerned if rank in self._changed), default=0.0)
            # One that has no process cannot continue: those that wait for it can.
            seen = [rank for rank in finding.culprits if rank in recording.ranks and recording.ranks[rank].pid]
            ranks = seen or finding.waiting or finding.concerned
            self._warned[_about(finding)] = finding, since, {rank: _place(recording, rank) for rank in ranks}
            self._warn(recording, finding)

    def _withdraw_but(self, doubts: Container[tuple[object, ...]], recording: Recording | None = None) -> None:
        """Withdraw the warnings that a new look does not confirm, unless their ranks have failed, or still wait there."""
        for about, told in self._warned.items():
            if told is None or about in doubts:
                continue
            finding, since, places = told
            if recording is not None and all(at and at == _place(recording, rank) for rank, at in places.items()):
                continue
            endings = [self._observer.ending(rank) for rank in places]
            if any(ending is None or ending.well for ending in endings):
                self._warned[about] = None
                self._withdraw(finding, tuple(places), time.monotonic() - since)

    def _check_answers(self, activities: Mapping[int, Activity]) -> None:
        """Raise if the request that began the run ended without a record of how the script ended.

        Raises:
            RuntimeError: a bug of ddpnb, or a failure of the host.
        """
        for rank in activities:
            answer = self._answers.get(rank)
            # Asked in this order: a rank writes the ending first.
            if answer is None or not answer.ready() or self._observer.ending(rank) is not None:
                continue
            if answer.successful():
                raise RuntimeError(f"rank {rank} is idle again and did not write how its script ended")
            raise RuntimeError(
                f"rank {rank} could not begin the run, or not write how it ended: {shortened(str(answer.exception()), 1000)}"
            )


def _concerned(diagnosis: Diagnosis) -> set[int]:
    """The ranks that an error mentions."""
    return {rank for finding in diagnosis.errors for rank in finding.concerned}


def _what(diagnosis: Diagnosis) -> list[object]:
    return [(finding.code, finding.culprits, finding.sides) for finding in diagnosis.errors]


def _doubts(diagnosis: Diagnosis) -> dict[tuple[object, ...], Finding]:
    """The findings that are not proven, by what they are about."""
    found = (finding for finding in diagnosis.findings if finding.unproven)
    return {_about(finding): finding for finding in found}


def _place(recording: Recording, rank: int) -> object:
    """Where the main thread of a rank is, and what it waits for; None: it is not known, or it waits for nothing."""
    record = recording.ranks[rank]
    starting = record.events(Joining, NewGroup, state="open")
    if starting:
        return starting[-1].began_ns
    stack, waits_on = record.main_stack, record.process.waits_on
    return (stack.frames[-1].site, waits_on) if stack is not None and stack.frames and waits_on else None


def _about(finding: Finding) -> tuple[object, ...]:
    return finding.code, finding.culprits, finding.sides, finding.where
