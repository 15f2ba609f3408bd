"""The same frame of all ranks side by side: which variables differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ddpnb.recording.calls import Site
from ddpnb.recording.recording import Recording
from ddpnb.recording.stacks import NOT_SHOWN, Frame
from ddpnb.recording.verbs import Opened

MAX_INSIDE = 64  # parts of a value
_LABEL, _TEXT = 200, 400  # characters
_PROGRAM = ("<module ", "<function ", "<class ")
_OPENS = ("<", "{", "[", "(")
_EMPTY = ("{}", "[]", "()")
_TENSOR = re.compile(  # described, or its repr
    r"[A-Za-z_]\w*\[[\d, ]{0,80}\] \w+ [a-z]|[-+.\w]{1,40} \(an? \w+ tensor|tensor\(|Parameter containing"
)
_SHUT = (*_PROGRAM, "<int of", "<ndarray", "<slice", "<set of", "<frozenset of")


_TEXTS = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
# A tensor with elements of which neither a value nor the norm is given, an object by its class, and what was cut.
_KIND_ONLY = re.compile(
    r"\w\[(?!(?:\d+, )*0(?:, \d+)*\])[\d, ]*\] [a-z]\w* [a-z]+(?::\d+)?(?! = | norm |[\w:])|<(?!module |function |class )[\w.]|…"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One variable. ``values``: its text on each rank that has it."""

    name: str
    values: Mapping[int, str]
    ranks: int

    @property
    def differs(self) -> bool:
        return len(self.values) < self.ranks or len({*self.values.values()} - {NOT_SHOWN}) > 1

    @property
    def uncompared(self) -> bool:
        """Whether all that is known to be equal is what kind of thing it is: a tensor by its shape, an object by its class."""
        if self.differs or len(self.values) < 2 or self.is_program:
            return False
        return any(text == NOT_SHOWN or _KIND_ONLY.search(_TEXTS.sub("''", text)) for text in self.values.values())

    @property
    def is_program(self) -> bool:
        """Whether it is a module, a function or a class on all ranks."""
        return all(text.startswith(_PROGRAM) for text in self.values.values())

    @property
    def opens(self) -> bool:
        """Whether there may be something inside: it is an object or a container."""
        return any(
            text.startswith(_OPENS) and text not in _EMPTY and not text.startswith(_SHUT)
            for text in self.values.values()
        )

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor on a rank, so that ``World.tensor`` can read it."""
        return any(_TENSOR.match(text) for text in self.values.values())


@dataclass(frozen=True, slots=True)
class SideBySide:
    """The variables of one function on several ranks, or what is inside one of them; those that differ first.

    ``sites``: the line of each rank in it. ``absent``: ranks that are not in this function, and where
    they are instead. ``path``: the variable that was opened. ``more``: rows that were left out.
    """

    function: str
    sites: Mapping[int, Site]
    rows: tuple[Row, ...]
    absent: Mapping[int, str]
    path: str = ""
    more: int = 0

    @property
    def differing(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.differs)

    @property
    def uncompared(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.uncompared)


def side_by_side(recording: Recording, depth: int = 0, rank: int | None = None) -> SideBySide | None:
    """Lay one user frame of the ranks side by side.

    That is the innermost function (or the ``depth``-th of them, outwards) of this rank; without one, that in which most
    ranks are. None when no rank, or not this one, is in the user's code.
    """
    frames = {rank: _user_frames(recording, rank) for rank in sorted(recording.ranks)}
    shared: dict[tuple[str, str], dict[int, Frame]] = {}
    inmost: dict[tuple[str, str], int] = {}
    for one, own in frames.items():
        for place, frame in enumerate(own):
            key = (frame.file, frame.function)
            if one not in shared.setdefault(key, {}):
                shared[key][one] = frame
                inmost[key] = max(inmost.get(key, 0), place)
    if not shared or (rank is not None and not frames.get(rank)):
        return None
    if rank is not None:
        own = frames[rank]
        frame = own[min(depth, len(own) - 1)]
        key = (frame.file, frame.function)
        return _laid(recording, frames, key, {**shared[key], rank: frame})
    most = max(len(ranks) for ranks in shared.values())
    common = sorted((key for key, ranks in shared.items() if len(ranks) == most), key=inmost.__getitem__)
    key = common[min(depth, len(common) - 1)]
    return _laid(recording, frames, key, shared[key])


def places(recording: Recording, frames: SideBySide) -> dict[int, int]:
    """Which user frame of each rank that is in this function it is, counted from the innermost."""
    found: dict[int, int] = {}
    for rank, site in frames.sites.items():
        own = _user_frames(recording, rank)
        found[rank] = next((place for place, frame in enumerate(own) if frame.site == site), 0)
    return found


def _laid(
    recording: Recording, frames: Mapping[int, list[Frame]], key: tuple[str, str], chosen: Mapping[int, Frame]
) -> SideBySide:
    chosen = dict(sorted(chosen.items()))
    names = dict.fromkeys(name for frame in chosen.values() for name in frame.locals)
    rows = [
        Row(name, {rank: frame.locals[name] for rank, frame in chosen.items() if name in frame.locals}, len(chosen))
        for name in names
    ]
    absent = {rank: _elsewhere(recording, rank, ones) for rank, ones in frames.items() if rank not in chosen}
    return SideBySide(
        key[1],
        {rank: frame.site for rank, frame in chosen.items()},
        _in_order(row for row in rows if row.differs or not row.is_program),
        absent,
    )


def _in_order(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: not row.differs))


def opened(frames: SideBySide, path: str, answers: Mapping[int, Opened]) -> SideBySide:
    """What is inside a variable of this function, one level deep, side by side.

    Args:
        frames: the function.
        path: the variable, as ``args`` or ``optimizer.param_groups[0]``.
        answers: what each rank said.
    """
    found: dict[int, dict[str, str]] = {}
    absent, more = dict[int, str](), 0
    for rank in frames.sites:
        answer = answers.get(rank, Opened(error="does not answer"))
        if answer.error:
            absent[rank] = answer.error[:_TEXT]
        else:
            pairs = [row for row in answer.inside[:MAX_INSIDE] if len(row) == 2]
            found[rank] = {label[:_LABEL]: text[:_TEXT] for label, text in pairs}
            more = max(more, answer.more)
    labels = dict.fromkeys(label for held in found.values() for label in held)
    rows = (Row(one, {r: held[one] for r, held in found.items() if one in held}, len(found)) for one in labels)
    sites = {rank: site for rank, site in frames.sites.items() if rank in found}
    return SideBySide(frames.function, sites, _in_order(rows), absent, path, more)


def _user_frames(recording: Recording, rank: int) -> list[Frame]:
    stack = recording.ranks[rank].shown_stack
    return list(reversed(stack.user_frames)) if stack is not None else []


def _elsewhere(recording: Recording, rank: int, frames: list[Frame]) -> str:
    if frames:
        return f"in {frames[0].function} at {frames[0].site}"
    ending = recording.ranks[rank].ending
    if ending is not None:
        return f"ended ({ending.how})"
    process = recording.ranks[rank].process
    if not process.answered:
        return "does not answer"
    return "not in the user's code" if recording.ranks[rank].shown_stack is not None else "its stack is not known"
