"""Stacks of all ranks merged into one tree, with the ranks on its branches.

The idea is STAT's (Arnold et al., "Stack Trace Analysis for Large Scale Debugging", IPDPS 2007).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

from ddpnb.recording.recording import Recording
from ddpnb.recording.stacks import Frame

_OUTERMOST, _INNERMOST = 40, 20  # frames kept of a deeper stack
_Place = tuple[str, int, str]
_Path = tuple[
    tuple[_Place, ...], list[int], tuple[Frame, ...]
]  # its places, the ranks that are there, the frames of the first
_place: Callable[[Frame], _Place] = attrgetter("file", "line", "function")


@dataclass(frozen=True, slots=True)
class Branch:
    """A frame in which these ranks are, and the frames that it has called, most ranks first."""

    frame: Frame
    ranks: tuple[int, ...]
    calls: tuple[Branch, ...] = ()


def merge(recording: Recording) -> tuple[Branch, ...]:
    """The main threads of all ranks (where another thread is held, that one), from the outermost frame of the user's code inwards.

    Args:
        recording: of ranks that were asked for their stacks; those that have none are left out.
    """
    alike: dict[tuple[_Place, ...], tuple[list[int], tuple[Frame, ...]]] = {}
    for rank, record in sorted(recording.ranks.items()):
        stack = record.shown_stack
        if stack is not None:
            frames = _from_user(stack.frames)
            alike.setdefault(tuple(map(_place, frames)), ([], frames))[0].append(rank)
    return _branches([(places, ranks, frames) for places, (ranks, frames) in alike.items()], 0)


def _from_user(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Without what ddpnb puts between a call and what it calls, or in which it holds a rank."""
    users = [number for number, frame in enumerate(frames) if frame.user] or [0]
    inner = frames[users[-1] :]
    held = next((number for number, frame in enumerate(inner) if frame.own and not frame.file.startswith("<")), None)
    path = tuple(frame for frame in (*frames[users[0] : users[-1]], *inner[:held]) if not frame.own)
    return path if len(path) <= _OUTERMOST + _INNERMOST else path[:_OUTERMOST] + path[-_INNERMOST:]


def _branches(paths: Sequence[_Path], depth: int) -> tuple[Branch, ...]:
    """The branches at this depth of paths that are equal up to there."""
    begun: dict[_Place, list[_Path]] = {}
    for path in paths:
        if len(path[0]) > depth:
            begun.setdefault(path[0][depth], []).append(path)
    branches = [
        Branch(ones[0][2][depth], tuple(sorted(chain(*(ranks for _, ranks, _ in ones)))), _branches(ones, depth + 1))
        for ones in begun.values()
    ]
    return tuple(sorted(branches, key=lambda one: (-len(one.ranks), one.ranks)))
