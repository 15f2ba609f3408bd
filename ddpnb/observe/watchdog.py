"""Watchdog: detects when the outcome of a run is known, because it has ended or provably hangs.

Progress is read from the black boxes, which costs the ranks nothing; ranks are asked only when they make none.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from ddpnb.diagnosis.diagnose import diagnose
from ddpnb.model.recording import Recording
from ddpnb.observe.observer import Observer
from ddpnb.observe.output import Stream
from ddpnb.processes.rank_processes import Answer, RankProcesses

_TICK_S = 0.05
_FOLLOW_S = 0.25  # between two looks at the digests of the replicas
_STILL_S = 0.12  # without progress for this long: examine the ranks
_SETTLE_S = 0.6  # time for further ranks to block, so that the diagnosis covers them too
_SETTLE_AT_MOST_S = 2.0  # the same for ranks that still compute
_LOOK_AT_MOST_S = 1.0  # between two examinations of blocked ranks


class Settling:
    """Watches the ranks of one run until its outcome is known.

    Args:
        engines: their processes.
        observer: looks at them.
        ranks: those that are in the run.
        answers: results of the run requests that were sent.
        stream: shows their output.
        stopping: set to stop watching.
        patience: seconds that a rank may be blocked outside any collective.
        leave_after_crash: wait no longer than that for the others once a rank has failed.
    """

    def __init__(
        self,
        engines: RankProcesses,
        observer: Observer,
        ranks: Sequence[int],
        answers: Mapping[int, Answer],
        stream: Stream,
        stopping: threading.Event,
        *,
        patience: float,
        leave_after_crash: bool,
    ) -> None:
        self._engines = engines
        self._stopped_at: float | None = None  # when the controller was stopped, while no rank makes progress
        self._observer = observer
        self._ranks = ranks
        self._answers = answers
        self._stream = stream
        self._stopping = stopping
        self._patience = patience
        self._leave_after_crash = leave_after_crash

    def watch(self) -> Recording | None:
        """The Recording for the diagnosis; None if ``stopping`` was set before.

        Raises:
            WorldError: the controller has died, or is stopped while no rank makes progress: nothing can be proven.
        """
        statuses = self._observer.statuses()
        changed = dict.fromkeys(self._ranks, time.monotonic())
        next_look, pause, still_before = 0.0, _STILL_S, frozenset()
        next_follow = 0.0
        crashed_at: float | None = None
        proven_at: float | None = None
        while not self._stopping.wait(_TICK_S):
            self._stream.pump()
            now = time.monotonic()
            fresh = self._observer.statuses()
            changed |= {rank: now for rank in self._ranks if fresh[rank] != statuses[rank]}
            statuses = fresh
            if now >= next_follow:
                self._observer.follow()
                next_follow = now + _FOLLOW_S
            activities = self._observer.look()
            if not activities:
                return self._observer.record(ask=False)
            if crashed_at is None and any(
                e is not None and not e.well for e in map(self._observer.ending, self._ranks)
            ):
                crashed_at = now
            self._check_orders(activities)
            if self._leave_after_crash and crashed_at is not None and now - crashed_at > self._patience:
                return self._observer.record()
            still = frozenset(
                rank
                for rank, activity in activities.items()
                if now - changed[rank] >= _STILL_S and (activity != "computing" or self._observer.waits(rank))
            )
            if still != still_before:
                still_before, pause = still, _STILL_S
                next_look = min(next_look, now)
            if not self._reachable(set(activities) <= still) or not still or now < next_look:
                continue
            recording = self._prove()
            if recording is not None:
                proven_at = proven_at or now
                late = self._untold(recording, activities)
                computing = any(activities[rank] == "computing" for rank in late)
                if not late or now - proven_at > (_SETTLE_AT_MOST_S if computing else _SETTLE_S):
                    return recording
                continue
            pause = min(_LOOK_AT_MOST_S, pause * 1.5)
            next_look = time.monotonic() + pause
        return None

    def _reachable(self, all_still: bool) -> bool:
        """Whether ranks can be asked at all. If not, a missing answer says nothing about them.

        Raises:
            WorldError: the controller has died, or has been stopped for ``patience`` seconds while no rank makes progress.
        """
        state = self._engines.connection
        if state == "lost" and any(self._observer.ending(rank) is None for rank in self._ranks):
            self._engines.check_connection()
        if state != "stopped" or not all_still:
            self._stopped_at = None
            return state == "open"
        self._stopped_at = self._stopped_at or time.monotonic()
        if time.monotonic() - self._stopped_at > self._patience:
            self._engines.check_connection()
        return False

    def _prove(self) -> Recording | None:
        """A Recording that proves that the run cannot continue; None if it may.

        It must hold twice, without progress on the ranks concerned in between: several processes cannot
        be read at one moment.
        """
        before = self._observer.statuses()
        first = diagnose(self._observer.record(), self._patience)
        if not first.settled or not first.errors:
            return None
        time.sleep(_STILL_S / 2)
        recording = self._observer.record()
        second = diagnose(recording, self._patience)
        if not second.settled or not second.errors:
            return None
        concerned = {rank for finding in second.errors for rank in finding.concerned}
        after = self._observer.statuses()
        if any(before[rank] != after[rank] for rank in concerned if rank in before):
            return None
        if not self._reachable(False):
            return None  # the controller died or was stopped meanwhile: no rank could answer
        named = [[(f.code, f.culprits, f.sides) for f in found.errors] for found in (first, second)]
        return recording if named[0] == named[1] else None

    def _untold(self, recording: Recording, running: Mapping[int, str]) -> set[int]:
        """The running ranks that no finding mentions."""
        errors = diagnose(recording, self._patience).errors
        return set(running) - {rank for finding in errors for rank in finding.concerned}

    def _check_orders(self, activities: Mapping[int, str]) -> None:
        """Raise if a run request ended without a record of how the script ended: a bug of ddpnb, or of the host."""
        for rank in activities:
            answer = self._answers.get(rank)
            # Asked in this order: a rank writes the ending first.
            if answer is None or not answer.ready() or self._observer.ending(rank) is not None:
                continue
            if answer.successful():
                raise RuntimeError(f"rank {rank} is idle again and did not write how its script ended")
            raise RuntimeError(
                f"rank {rank} could not begin the run, or not write how it ended: {str(answer.exception())[:1000]}"
            )
