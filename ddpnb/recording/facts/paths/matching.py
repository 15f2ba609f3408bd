"""Which calls of two ranks must match: those of groups that hold both."""

from __future__ import annotations

import re

from ddpnb.recording.calls import Group, listed
from ddpnb.recording.facts.paths.frames import Trace

_LISTED = re.compile(r"\[([0-9, -]{1,400})\](?: #\d+)?$")
_MAKES_GROUP = "new_group"


class Counted:
    """Whether the other rank must make a call too. Messages are matched by their peers, not by place.

    All ranks make a new group, unless only its members do: then they have met again behind it.
    """

    def __init__(self, one: Trace, other: Trace, shared: frozenset[int]) -> None:
        self._shared = shared
        self._met = {id(one): self._last_common(one, other), id(other): self._last_common(other, one)}

    def __call__(self, trace: Trace, call: int) -> bool:
        if trace.peers[call]:
            return False
        if trace.number(call):
            return trace.group(call) in self._shared
        return trace.operator(call) == _MAKES_GROUP and (
            trace.group(call) in self._shared or call > self._met[id(trace)]
        )

    def _last_common(self, one: Trace, other: Trace) -> int:
        return next(
            (
                call
                for call in range(len(one.keys) - 1, -1, -1)
                if one.number(call)
                and not one.peers[call]
                and one.group(call) in self._shared
                and one.keys[call] in other.made
            ),
            -1,
        )


def waits(trace: Trace) -> bool:
    return bool(trace.calls) and trace.calls[-1] + 2 == len(trace)


def listed_in(name: str) -> list[int] | None:
    """The members that the name of a group lists: ``group [0-3, 6]``."""
    match = _LISTED.search(name)
    if match is None:
        return None
    found: list[int] = []
    for part in match[1].split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (not last or last.isdigit()) and int(last or first) < 1 << 20:
            found += range(int(first), int(last or first) + 1)
    return found


def names_of(group: Group) -> tuple[str, str]:
    """The names by which paths may call a group: a label does not tell groups apart."""
    times = f" #{group.ordinal + 1}" if group.ordinal else ""
    return group.title, f"{group} {listed(group.ranks)}{times}"
