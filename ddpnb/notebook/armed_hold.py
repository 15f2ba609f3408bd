"""A hold as a dashboard lists it: on or off, and which ranks it holds now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddpnb.recording.calls import CallState
from ddpnb.recording.events.runs import Held
from ddpnb.recording.holds import Hold, Place
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.world.breakpoints import Holding


@dataclass(frozen=True)
class ArmedHold:
    """``on``: it is armed; else it was switched off, and can be armed again."""

    holding: Holding
    on: bool = True

    @property
    def hold(self) -> Hold:
        return self.holding.hold

    @property
    def place(self) -> Place:
        """Of its line; without one, that of nothing."""
        return Place.read(self.hold.line) if self.hold.line else Place()

    def is_at(self, file: str, line: int) -> bool:
        """Whether it is the hold of this line of a file."""
        return self.place.line == line > 0 and self.place.is_of(file)

    def may_hold(self, recording: Recording | None) -> bool:
        """Whether it may be what holds one of its ranks now."""
        ranks = recording.ranks if recording is not None else {}
        return any(_holds(self.hold, ranks[rank]) for rank in self.holding.ranks if rank in ranks)

    def __str__(self) -> str:
        return str(self.holding)


def with_ranks(holds: Sequence[ArmedHold], recording: Recording | None) -> list[tuple[ArmedHold, tuple[int, ...]]]:
    """Each of them, with the ranks that it holds now, as far as that is known."""
    found: dict[int, list[int]] = {}
    for rank, record in sorted(recording.ranks.items()) if recording is not None else ():
        fits = [at for at, one in enumerate(holds) if one.on and rank in one.holding.ranks and _holds(one.hold, record)]
        if len(fits) == 1 or (fits and holds[fits[0]].hold.at_lines):
            found.setdefault(fits[0], []).append(rank)
    return [(one, tuple(found.get(at, ()))) for at, one in enumerate(holds)]


def _holds(hold: Hold, record: RankRecord) -> bool:
    """Whether this hold may be what holds a rank."""
    stopped = next((one for one in reversed(record.events(Held, state="open")) if one.kind != "call"), None)
    if stopped is None:
        held = any(call.state is CallState.HELD for call in record.calls[-1:])
        return held and not hold.at_lines
    if hold.exception or not hold.line or stopped.kind == "exception":
        return hold.exception and stopped.kind == "exception"
    place = Place.read(hold.line)
    at = stopped.site
    return place.is_of(at.file) and (place.line == at.line if place.line else place.is_entry_of(at.function))
