"""The same frame of all ranks side by side: which variables differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ddpnb.model.calls import Site
from ddpnb.model.recording import Recording
from ddpnb.model.stacks import NOT_SHOWN, Frame


@dataclass(frozen=True, slots=True)
class Row:
    """One variable. ``values``: its text on each rank that has it."""

    name: str
    values: Mapping[int, str]
    ranks: int

    @property
    def differs(self) -> bool:
        return len(self.values) < self.ranks or len({*self.values.values()} - {NOT_SHOWN}) > 1


@dataclass(frozen=True, slots=True)
class SideBySide:
    """The variables of one function on several ranks, those that differ first.

    ``sites``: the line of each rank in it. ``absent``: ranks that are not in this function, and where
    they are instead.
    """

    function: str
    sites: Mapping[int, Site]
    rows: tuple[Row, ...]
    absent: Mapping[int, str]

    @property
    def differing(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.differs)


def side_by_side(recording: Recording, depth: int = 0) -> SideBySide | None:
    """Lay one user frame of the ranks side by side.

    That is the innermost function (or the ``depth``-th of them, outwards) in which most ranks are.
    None when no rank is in the user's code.
    """
    frames = {rank: _user_frames(recording, rank) for rank in sorted(recording.ranks)}
    shared: dict[tuple[str, str], dict[int, Frame]] = {}
    inmost: dict[tuple[str, str], int] = {}
    for rank, ones in frames.items():
        for place, frame in enumerate(ones):
            key = (frame.file, frame.function)
            if rank not in shared.setdefault(key, {}):
                shared[key][rank] = frame
                inmost[key] = max(inmost.get(key, 0), place)
    if not shared:
        return None
    most = max(len(ranks) for ranks in shared.values())
    common = sorted((key for key, ranks in shared.items() if len(ranks) == most), key=inmost.__getitem__)
    key = common[min(depth, len(common) - 1)]
    chosen = shared[key]
    names = dict.fromkeys(name for frame in chosen.values() for name in frame.locals)
    rows = [
        Row(name, {rank: frame.locals[name] for rank, frame in chosen.items() if name in frame.locals}, len(chosen))
        for name in names
    ]
    absent = {rank: _elsewhere(recording, rank, ones) for rank, ones in frames.items() if rank not in chosen}
    return SideBySide(
        key[1],
        {rank: frame.site for rank, frame in chosen.items()},
        tuple(sorted(rows, key=lambda row: not row.differs)),
        absent,
    )


def _user_frames(recording: Recording, rank: int) -> list[Frame]:
    stack = recording.ranks[rank].main_stack
    return list(reversed(stack.user_frames)) if stack is not None else []


def _elsewhere(recording: Recording, rank: int, frames: list[Frame]) -> str:
    if frames:
        return f"in {frames[0].function} at {frames[0].site}"
    ending = recording.ranks[rank].ending
    if ending is not None:
        return f"ended ({ending.how})"
    process = recording.ranks[rank].process
    return "does not answer" if not process.answered else "not in the user's code"
