"""The frames that a rank is in."""

from __future__ import annotations

from collections.abc import Sequence

from ddpnb.recording.facts.standings import Standing
from ddpnb.recording.recording import RankRecord
from ddpnb.recording.stacks import Frame, Stack

_WRAPPER = "/torch/nn/parallel/distributed.py"


def frames_of(record: RankRecord) -> tuple[Frame, ...]:
    """Those of its main thread."""
    stack: Stack | None = record.main_stack
    return stack.frames if stack is not None else ()


def frames_at(standing: Standing) -> tuple[Frame, ...]:
    """Those of its main thread; of a rank that has ended, those of its end."""
    frames = frames_of(standing.record)
    return frames or (standing.record.ending.frames if standing.record.ending is not None else ())


def below_user(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Those that the innermost line of the user's code called; all of them where none is the user's."""
    last = max((number for number, frame in enumerate(frames) if frame.user), default=-1)
    return frames[last + 1 :]


def in_backward(standing: Standing) -> bool:
    """Whether a rank is in torch's backward; the names of the user's functions prove nothing."""
    return any("backward" in frame.function.lower() for frame in frames_at(standing) if not frame.user)


def in_wrapper(standing: Standing) -> bool:
    """Whether a rank is in a call of a wrapper's own, such as Join makes on ranks that have finished."""
    return in_backward(standing) or any(frame.file.endswith(_WRAPPER) for frame in frames_at(standing))
