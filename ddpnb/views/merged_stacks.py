"""Stacks of all ranks merged into one tree, with the ranks on its branches.

The idea is STAT's (Arnold et al., "Stack Trace Analysis for Large Scale Debugging", IPDPS 2007).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ddpnb.model.recording import Recording
from ddpnb.model.stacks import Frame

_OUTERMOST, _INNERMOST = 40, 20  # frames kept of a deeper stack


@dataclass(frozen=True, slots=True)
class Branch:
    """A frame in which these ranks are, and the frames that it has called, most ranks first."""

    frame: Frame
    ranks: tuple[int, ...]
    calls: tuple[Branch, ...] = ()


def merge(recording: Recording) -> tuple[Branch, ...]:
    """The main threads of all ranks, from the outermost frame of the user's code inwards.

    Args:
        recording: of ranks that were asked for their stacks; those that have none are left out.
    """
    return _branches(
        (rank, _from_user(record.main_stack.frames))
        for rank, record in sorted(recording.ranks.items())
        if record.main_stack is not None
    )


def _from_user(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    first = next((number for number, frame in enumerate(frames) if frame.user), 0)
    path = frames[first:]
    return path if len(path) <= _OUTERMOST + _INNERMOST else path[:_OUTERMOST] + path[-_INNERMOST:]


def _branches(paths: Iterable[tuple[int, tuple[Frame, ...]]]) -> tuple[Branch, ...]:
    found: dict[tuple[str, int, str], list[tuple[int, tuple[Frame, ...]]]] = {}
    for rank, path in paths:
        if path:
            found.setdefault((path[0].file, path[0].line, path[0].function), []).append((rank, path))
    branches = [
        Branch(ones[0][1][0], tuple(rank for rank, _ in ones), _branches((rank, path[1:]) for rank, path in ones))
        for ones in found.values()
    ]
    return tuple(sorted(branches, key=lambda one: (-len(one.ranks), one.ranks)))
