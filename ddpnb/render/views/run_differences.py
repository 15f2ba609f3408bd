"""Two runs side by side: what was found in each, where the time went, and where their ranks differ first."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from ddpnb.recording.calls import Call
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.texts import shortened

_LONGEST = 160  # characters of a line of output
_NONE = "nothing"


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs first on a rank. ``kind``: of what was recorded; ``first`` and ``second`` say it of each run."""

    kind: str
    rank: int
    first: str
    second: str

    def __str__(self) -> str:
        return f"rank {self.rank}, {self.kind}: {self.first} in the first run, {self.second} in the second"


def first_differences(first: Recording, second: Recording) -> tuple[Difference, ...]:
    """The first difference of each kind, on the lowest rank that has one: executed lines, calls, endings, outputs.

    Of calls and outputs only what both recordings still hold is compared; places are compared without the folder.
    """
    ranks = sorted(first.ranks.keys() & second.ranks.keys())
    found: list[Difference] = []
    for compare in (_in_lines, _in_calls, _in_endings, _in_output):
        pairs = ((rank, compare(first.ranks[rank], second.ranks[rank])) for rank in ranks)
        known = next(((rank, kind) for rank, kind in pairs if kind is not None), None)
        if known is not None:
            rank, (kind, left, right) = known
            found.append(Difference(kind, rank, left, right))
    return tuple(found)


_Both = tuple[str, str, str]


def _in_lines(first: RankRecord, second: RankRecord) -> _Both | None:
    """The line that one run alone has executed, the earliest one; of files that both have."""
    if first.executed is None or second.executed is None:
        return None
    left, right = (
        {(line.site.file, line.site.line): line.first for line in one.lines}
        for one in (first.executed, second.executed)
    )
    shared = {file for file, _ in left} & {file for file, _ in right}
    apart = [(window, place) for place, window in (left | right).items() if (place in left) != (place in right)]
    apart = [(window, place) for window, place in apart if place[0] in shared]
    if not apart:
        return None
    file, line = min(apart)[1]
    place = f"{file.rpartition('/')[2]}:{line}"
    ran, not_run = f"{place} was run", f"{place} was not run"
    return ("executed lines", ran, not_run) if (file, line) in left else ("executed lines", not_run, ran)


def _in_calls(first: RankRecord, second: RankRecord) -> _Both | None:
    """The first call that is another one; nothing can be said where the first calls of a run are no longer kept."""
    if first.forgotten or second.forgotten:
        return None
    for left, right in zip_longest(first.calls, second.calls):
        if _called(left) != _called(right):
            return "calls", _call(left), _call(right)
    return None


def _called(call: Call | None) -> object:
    return None if call is None else (call.title, str(call.group), call.signature, call.site.line)


def _call(call: Call | None) -> str:
    if call is None:
        return "no more calls"
    return f"{call.title} ({call.signature}) at {call.site.file.rpartition('/')[2]}:{call.site.line}"


def _in_endings(first: RankRecord, second: RankRecord) -> _Both | None:
    left, right = (str(one.ending) if one.ending is not None else "it did not end" for one in (first, second))
    return ("ending", left, right) if left != right else None


def _in_output(first: RankRecord, second: RankRecord) -> _Both | None:
    """The first line of the output that is another one, of what both recordings keep."""
    for left, right in zip_longest(first.output.splitlines(), second.output.splitlines()):
        if left != right:
            return "output", _line(left), _line(right)
    return None


def _line(text: str | None) -> str:
    return _NONE if text is None else repr(shortened(text, _LONGEST))
