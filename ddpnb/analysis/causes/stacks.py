"""The frames in which a rank stands, and what they are inside of."""

from __future__ import annotations

from collections.abc import Iterable

from ddpnb.analysis.waiting.standing import Standing
from ddpnb.model.recording import RankRecord
from ddpnb.model.stacks import Frame, Stack


def frames_of(record: RankRecord) -> tuple[Frame, ...]:
    """Those of its main thread."""
    stack: Stack | None = record.main_stack
    return stack.frames if stack is not None else ()


def frames_at(standing: Standing) -> tuple[Frame, ...]:
    """Those of its main thread; of a rank that has ended, those of its end."""
    frames = frames_of(standing.record)
    return frames or (standing.record.ending.frames if standing.record.ending is not None else ())


def inside(standing: Standing, words: Iterable[str]) -> bool:
    """Whether a frame of the user's, or one of torch's, has such a word in its function's name."""
    return any(any(word in frame.function.lower() for word in words) for frame in frames_at(standing))
