"""A Recording with the facts that rules ask for, each computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

from ddpnb.facts.digests import Split, split
from ddpnb.facts.patience import PATIENCE
from ddpnb.facts.standings import Standing, standings
from ddpnb.facts.waits import Wait, stuck, waits
from ddpnb.model.events import Event
from ddpnb.model.findings import Finding
from ddpnb.model.recording import RankRecord, Recording

T = TypeVar("T")
U = TypeVar("U")
E = TypeVar("E", bound=Event)

Part = Literal["calls", "events", "stacks", "path"]


class PerRank(dict[int, T], Generic[T]):
    """rank -> value: what rules compare."""

    def of(self, get: Callable[[T], U | None]) -> PerRank[U]:
        """What this gives for each rank, without the ranks for which it gives None."""
        return PerRank((rank, value) for rank, one in sorted(self.items()) if (value := get(one)) is not None)

    def among(self, ranks: Iterable[int]) -> PerRank[T]:
        """These ranks only."""
        return PerRank((rank, self[rank]) for rank in sorted(set(ranks)) if rank in self)

    @property
    def split(self) -> Split:
        """The ranks by their values."""
        return split(self)


@dataclass
class Snapshot:
    """One moment of all ranks, as the rules see it.

    ``patience``: seconds that a rank may be blocked outside any collective. ``findings``: those that were found before: of the
    failures (why ranks failed or are blocked), then of the rules that were asked earlier.

    Example:
        >>> starts = snap.last(InitProcessGroup)
        >>> starts.of(lambda start: start.versions.get("torch")).split.culprits
        (1,)
    """

    recording: Recording
    patience: float = PATIENCE
    findings: list[Finding] = field(default_factory=list[Finding])
    failures: tuple[Finding, ...] = ()

    @cached_property
    def ranks(self) -> PerRank[RankRecord]:
        return PerRank(sorted(self.recording.ranks.items()))

    @cached_property
    def standings(self) -> Mapping[int, Standing]:
        """Where each rank is."""
        return standings(self.recording)

    @cached_property
    def waits(self) -> Mapping[int, Wait]:
        """What each waiting rank waits for."""
        return waits(self.recording, dict(self.standings), self.patience)

    @cached_property
    def stuck(self) -> frozenset[int]:
        """The ranks that can never continue."""
        return stuck(dict(self.waits), dict(self.standings), self.patience)

    def every(self, *kinds: type[E], **fields: Any) -> PerRank[tuple[E, ...]]:
        """The events of these kinds, of the ranks that have some: ``snap.every(CheckpointSaved, path=path)``."""

        def chosen(record: RankRecord) -> tuple[E, ...] | None:
            events = record.events(*kinds)
            return tuple(e for e in events if all(getattr(e, name) == value for name, value in fields.items())) or None

        return self.ranks.of(chosen)

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
        return {rank: frozenset(_not_recorded(record)) for rank, record in self.ranks.items()}


_ALL: frozenset[Part] = frozenset(("calls", "events", "stacks", "path"))


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
