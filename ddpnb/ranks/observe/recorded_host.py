"""The ranks of one process group on one host, as their files show them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import Any

from ddpnb.ranks.jobs.job_processes import RECORDED, Identity, JobProcesses, job_endings
from ddpnb.ranks.observe.observer import Observer
from ddpnb.recording.blackbox import BoxReader
from ddpnb.recording.ending import Ending
from ddpnb.recording.names import UNDECODABLE
from ddpnb.recording.recording import RankRecord
from ddpnb.recording.shared import FileBytes
from ddpnb.recording.stacks import Stack, stacks_in, unseen_in

_STACKS_LIMIT = 16 << 20


@dataclass
class RecordedRank:
    """What the files of a rank say beside its calls. Times are by the clock that ``RecordedHost.ranks`` was given."""

    who: Identity
    alive: bool  # here
    shift_ns: int = 0
    alive_ns: int = 0  # its last sign of life
    quiet_s: float = 0.0  # without progress by then
    stacks: tuple[Stack, ...] = ()  # if it wrote any since it made progress
    idle: bool = False
    wakes_in_s: float | None = None
    waits_on: str = ""
    unseen: tuple[str, ...] = ()

    @property
    def dead(self) -> bool:
        """Whether its process, which was one of this host, is no more."""
        return self.who.here and not self.alive

    def silent(self, record: RankRecord) -> bool:
        """Whether nothing but files is known of it, and they do not say how it ended."""
        return record.ending is None and not self.alive

    def completed(self, record: RankRecord) -> RankRecord:
        """What an observer has read of it, with what only the files say."""
        record = replace(record, pid=self.who.pid)
        if self.silent(record):
            record = replace(record, stacks=self.stacks, unseen=self.unseen)
        if record.ending is not None and record.ending.how == "died":  # an observer takes the moment when it looks
            record = replace(record, ending=replace(record.ending, at_ns=self.alive_ns - self.shift_ns))
        return _shifted(record, self.shift_ns) if self.shift_ns else record


class RecordedHost:
    """The ranks of one process group on one host.

    Args:
        folder: with their files.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._processes = JobProcesses(folder, RECORDED)
        self._known = self._processes.found()
        self.observer = Observer(self._processes, folder, job_endings(folder, self._known), 1)

    @property
    def size(self) -> int:
        """The number of ranks in the world: as they say, and at least those that there are."""
        return max(*(who.size for who in self._known.values()), max(self._known) + 1)

    @property
    def endings(self) -> list[Ending | None]:
        """How its ranks have ended, as far as they have."""
        return [self.observer.ending(rank) for rank in self._known]

    def ranks(self, shift_ns: int) -> dict[int, RecordedRank]:
        """The ranks that have records here, now.

        Args:
            shift_ns: what is added to all times, for another clock than that of the host.
        """
        return {rank: self._rank(rank, who, shift_ns) for rank, who in self._known.items()}

    @property
    def _first(self) -> Identity:
        return self._known[min(self._known)]

    @property
    def start(self) -> str:
        """What the start of the process group is called on all hosts."""
        return self._first.start

    @property
    def name(self) -> str:
        """Of the host."""
        return self._first.host

    @property
    def numbers(self) -> list[int]:
        """The ranks that have records here."""
        return list(self._known)

    @property
    def here(self) -> bool:
        return self._first.here

    @property
    def began_ns(self) -> int:
        """When the first rank came, in nanoseconds since the epoch."""
        return min(who.clock[1] for who in self._known.values())

    @property
    def alive(self) -> list[int]:
        """The ranks that live here."""
        return [rank for rank in self._known if self._processes.alive(rank)]

    @property
    def progress(self) -> dict[int, int]:
        """When each rank made progress last, by the clock of its host."""
        return {rank: self.observer.status(rank).progress_ns for rank in self._known}

    def shift_to(self, other: RecordedHost) -> int:
        """What makes a time of this host's monotonic clock one of the other's, by what both clocks showed at the start."""
        if self is other or (self.here and other.here):
            return 0
        mine, theirs = ((wall - monotonic) for monotonic, wall in (self._first.clock, other._first.clock))
        return mine - theirs

    def _rank(self, rank: int, who: Identity, shift_ns: int) -> RecordedRank:
        known = RecordedRank(who, self._processes.alive(rank), shift_ns)
        progress_ns = self.observer.status(rank).progress_ns
        known.alive_ns = max(self._sign_of_life(rank), progress_ns)
        known.quiet_s = (known.alive_ns - progress_ns) * 1e-9
        told = _stacks(os.path.join(self.folder, f"rank{rank}.stacks.json"))
        at_ns = told.get("at_ns")
        if isinstance(at_ns, int) and at_ns > progress_ns:
            known.stacks = stacks_in(told.get("stacks"))
            known.idle = told.get("idle") is True
            wakes = told.get("wakes_in_s")
            known.wakes_in_s = wakes - (known.alive_ns - at_ns) * 1e-9 if isinstance(wakes, (int, float)) else None
            known.waits_on = str(told.get("waits_on") or "")[:200]
            known.unseen = unseen_in(told.get("unseen"))
        known.alive_ns += shift_ns
        return known

    def _sign_of_life(self, rank: int) -> int:
        try:
            return BoxReader(FileBytes(os.path.join(self.folder, f"rank{rank}.box"))).alive_ns
        except (OSError, ValueError):
            return 0


def host_in(folder: str) -> RecordedHost | None:
    """The ranks with records in this folder; None: there is none."""
    host = RecordedHost(folder)
    return host if host.ranks(0) else None


def _stacks(path: str) -> dict[str, Any]:
    """What ``recorder.channel.heartbeat`` wrote."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            told = json.loads(file.read(_STACKS_LIMIT))
        return told if isinstance(told, dict) else {}
    except (OSError, *UNDECODABLE):
        return {}


def _shifted(record: RankRecord, ns: int) -> RankRecord:
    """The record of a rank by another clock. A time of 0 is none."""

    def at(time_ns: int) -> int:
        return time_ns + ns if time_ns else 0

    return replace(
        record,
        calls=tuple(
            replace(
                c,
                entered_ns=at(c.entered_ns),
                issued_ns=at(c.issued_ns),
                done_ns=at(c.done_ns),
                asked_ns=at(c.asked_ns),
            )
            for c in record.calls
        ),
        history=tuple(replace(e, began_ns=at(e.began_ns), ended_ns=at(e.ended_ns)) for e in record.history),
        marks=tuple(replace(mark, at_ns=at(mark.at_ns)) for mark in record.marks),
        samples=tuple(replace(sample, at_ns=at(sample.at_ns)) for sample in record.samples),
        ending=record.ending and replace(record.ending, at_ns=at(record.ending.at_ns)),
        lines=record.lines
        and replace(record.lines, windows=tuple(replace(w, began_ns=at(w.began_ns)) for w in record.lines.windows)),
    )
