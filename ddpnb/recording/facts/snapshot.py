"""A Recording with the facts that rules ask for, each computed once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

from ddpnb.recording.calls import Site
from ddpnb.recording.events import Event
from ddpnb.recording.facts import never
from ddpnb.recording.facts.before_the_end import while_waiting
from ddpnb.recording.facts.endings import before_the_signal
from ddpnb.recording.facts.once import once
from ddpnb.recording.facts.patience import PATIENCE
from ddpnb.recording.facts.silent_hosts import silent_hosts
from ddpnb.recording.facts.stack_stops import stack_stop
from ddpnb.recording.facts.standings import Standing, standings, with_absent, with_polls
from ddpnb.recording.facts.stops import Stop, failures, stops
from ddpnb.recording.facts.waits import Wait, stuck, waits
from ddpnb.recording.findings import Finding
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.split import Split, split

T = TypeVar("T")
U = TypeVar("U")
E = TypeVar("E", bound=Event)

Part = Literal["calls", "events", "stacks", "path"]
ONLY_PROVEN = math.inf  # as patience: ranks that are blocked outside any collective may always continue
PARTS: tuple[Part, ...] = ("calls", "events", "stacks", "path")


class PerRank(dict[int, T], Generic[T]):
    """rank -> value: what rules compare."""

    def of(self, get: Callable[[T], U | None]) -> PerRank[U]:
        """What this gives for each rank, without the ranks for which it gives None."""
        return PerRank((rank, value) for rank, one in sorted(self.items()) if (value := get(one)) is not None)

    def among(self, ranks: Iterable[int]) -> PerRank[T]:
        """These ranks only."""
        return PerRank((rank, self[rank]) for rank in sorted(set(ranks)) if rank in self)

    def having(self, value: T) -> tuple[int, ...]:
        """The ranks with this value."""
        return tuple(rank for rank, one in self.items() if one == value)

    @property
    def split(self) -> Split:
        """The ranks by their values."""
        return split(self)


@once
def _standings(recording: Recording) -> dict[int, Standing]:
    """Where each rank is, whatever patience there is."""
    seen = standings(recording)
    return seen if any(record.unrecorded for record in recording.ranks.values()) else never.marked(recording, seen)


@once
def _having(recording: Recording) -> dict[type[Event], set[int]]:
    """kind of event -> the ranks that have some: of many ranks most kinds are asked for in vain."""
    found: dict[type[Event], set[int]] = {}
    for rank, record in recording.ranks.items():
        for kind in {type(event) for event in record.history}:
            found.setdefault(kind, set()).add(rank)
    return found


@dataclass
class Snapshot:
    """One moment of all ranks, as the rules see it.

    ``_patience``: seconds that a rank may be blocked outside any collective. ``findings``: those that were found before: of the
    failures (why ranks failed or are blocked), then of the rules that were asked earlier.

    Example:
        >>> starts = snap.last(InitProcessGroup)
        >>> starts.of(lambda start: start.versions.get("torch")).split.culprits
        (1,)
    """

    recording: Recording
    _patience: float = PATIENCE
    findings: list[Finding] = field(default_factory=list[Finding])
    failures: tuple[Finding, ...] = ()
    given: Recording | None = None
    _asked: bool = False  # a rule has asked for the patience

    @classmethod
    def of(cls, given: Recording, patience: float = PATIENCE) -> Snapshot:
        """Of a Recording, as its ranks were before a launcher, a time-out or Ctrl-C ended those that did not fail by themselves."""
        then = while_waiting(given) if given.report is not None else before_the_signal(given)
        return cls(then, patience, given=given)

    def only_proven(self) -> Snapshot:
        """The same moment, where no rank is blamed for how long it has been blocked: it may always continue."""
        return Snapshot(self.recording, ONLY_PROVEN, given=self.given)

    @property
    def patience(self) -> float:
        """For a rule: what it finds by that alone is not proven."""
        self._asked = True
        return self._patience

    @property
    def timed(self) -> bool:
        """Whether rules may find something else where patience has no end: a fact or an answer of theirs depends on it."""
        if self._asked:
            return True
        proven = self.only_proven()
        return (
            self.standings != proven.standings
            or _needs(self.waits) != _needs(proven.waits)
            or self.stuck != proven.stuck
            or self.stops != proven.stops
        )

    @cached_property
    def ranks(self) -> PerRank[RankRecord]:
        return PerRank(sorted(self.recording.ranks.items()))

    @cached_property
    def standings(self) -> Mapping[int, Standing]:
        """Where each rank is."""
        seen = _standings(self.recording)
        if any(record.unrecorded for record in self.ranks.values()):
            return seen
        return with_absent(self.recording, with_polls(self.recording, seen, self._patience), self._patience)

    @cached_property
    def waits(self) -> Mapping[int, Wait]:
        """What each waiting rank waits for."""
        return waits(self.recording, self.standings, self._patience)

    @cached_property
    def stuck(self) -> frozenset[int]:
        """The ranks that can never continue."""
        return stuck(self.waits, self.standings, self._patience)

    @cached_property
    def stops(self) -> tuple[Stop, ...]:
        """Why ranks cannot continue."""
        reported = self.recording.report is not None
        if not self.knows("calls") and not reported:
            found = failures(self.recording, self.standings, {})
        else:
            found = stops(self.recording, self.standings, self.waits, self.stuck, self._patience)
        if not found and self.knows("stacks") and any(record.unrecorded for record in self.ranks.values()):
            by_stacks = stack_stop(self.recording, self.standings, 0.0 if reported else self._patience)
            found = [by_stacks] if by_stacks is not None else []
        return tuple(found)

    @cached_property
    def over(self) -> bool:
        """Whether all ranks have ended."""
        known = len(self.standings) == self.recording.world_size
        return known and all(one.state is RankState.ENDED for one in self.standings.values())

    @cached_property
    def observed(self) -> bool:
        """Whether a recorder watches the ranks: of a report or of stacks alone, no later look says more."""
        return self.recording.report is None and not any(record.unrecorded for record in self.ranks.values())

    def at(self, ranks: Iterable[int]) -> dict[int, Site]:
        """Where these ranks are."""
        return {rank: self.standings[rank].site for rank in ranks if rank in self.standings}

    def every(self, *kinds: type[E], **fields: Any) -> PerRank[tuple[E, ...]]:
        """The events of these kinds, of the ranks that have some: ``snap.every(CheckpointSaved, path=path)``."""

        def chosen(record: RankRecord) -> tuple[E, ...] | None:
            events = record.events(*kinds)
            return tuple(e for e in events if all(getattr(e, name) == value for name, value in fields.items())) or None

        having = (ranks for kind, ranks in _having(self.recording).items() if issubclass(kind, kinds))
        return self.ranks.among(set[int]().union(*having)).of(chosen)

    def last(self, *kinds: type[E], **fields: Any) -> PerRank[E]:
        """The last such event of each rank that has one."""
        return self.every(*kinds, **fields).of(lambda events: events[-1])

    def found(self, *codes: str) -> tuple[Finding, ...]:
        """The findings of these codes among those that were found before."""
        return tuple(finding for finding in self.findings if finding.code in codes)

    def unknown(self, rank: int) -> frozenset[Part]:
        """What was not recorded of a rank: its ``calls``, ``events``, ``stacks`` or ``path``."""
        return self._unknown.get(rank, _ALL)

    def knows(self, part: Part) -> bool:
        """Whether it was recorded of at least one rank."""
        return any(part not in unknown for unknown in self._unknown.values())

    @cached_property
    def _unknown(self) -> dict[int, frozenset[Part]]:
        if silent_hosts(self.recording):  # what one rank did explains nothing while others are not heard of
            return {}
        found = {rank: frozenset(_not_recorded(record)) for rank, record in self.ranks.items()}
        if self.recording.report is None and any(record.unrecorded for record in self.ranks.values()):
            return {rank: unknown | _OF_RECORDER for rank, unknown in found.items()}  # with others it can't be compared
        return found


_OF_RECORDER: frozenset[Part] = frozenset(("calls", "events", "path"))
_ALL: frozenset[Part] = frozenset(PARTS)


def _needs(found: Mapping[int, Wait]) -> dict[int, tuple[object, ...]]:
    return {rank: (wait.missing, wait.certain, wait.finite) for rank, wait in found.items()}  # sets are shared


def _not_recorded(record: RankRecord) -> list[Part]:
    found: list[Part] = []
    if record.unrecorded or (record.reported and not record.calls):
        found.append("calls")
    if record.unrecorded or (record.reported and not record.history):
        found.append("events")
    if not record.stacks:
        found.append("stacks")
    if record.path is None:
        found.append("path")
    return found
