"""A step of a held thread: before which line it stops again."""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType, FrameType

from ddpnb.errors import UsageError
from ddpnb.recorder.holds.parted import Function
from ddpnb.recorder.stacks.user_frames import is_user_frame


class Step:
    """Where a thread stops again: in one of these frames, or (``into``) in any code of the user's.

    Args:
        how: see ``holds.HOW``.
        left: how many steps, with this one.
        frames: in which it may stop.
        inside: a loop, as its frame and function and where it begins: only at the end of its iteration, or behind it.
    """

    def __init__(
        self, how: str, left: int, frames: Iterable[FrameType], loop: tuple[FrameType, Function, int] | None = None
    ) -> None:
        self.how, self.left, self.into, self.loop = how, left, how == "into", loop
        self.frames = [*frames]
        self._ids = {id(frame) for frame in self.frames}  # the frames are kept, so that an id stays its own
        self._again = False

    @property
    def codes(self) -> list[CodeType]:
        """The functions in whose lines it may end."""
        return [frame.f_code for frame in self.frames]

    def reaches(self, frame: FrameType) -> bool:
        """Whether a thread that is before a line in this frame has made the step."""
        if id(frame) not in self._ids:
            return self.into and is_user_frame(frame)
        if self.loop is None or frame is not self.loop[0]:
            return True
        _, function, head = self.loop
        return self._again or function.block(frame.f_lasti) not in function.graph.loops[head]

    def jumps(self, frame: FrameType, target: int) -> bool:
        """Note a jump back, which may end the iteration."""
        if self.loop is not None and frame is self.loop[0] and self.loop[1].graph.heads.get(target) == self.loop[2]:
            self._again = True
            return True
        return False


def step_from(frame: FrameType, how: str, left: int) -> Step:
    """The step of a thread that is in this frame.

    Raises:
        UsageError: it has no such end.
    """
    frames = [one for one in _outwards(frame) if is_user_frame(one)]
    if how == "out":
        frames = [one for one in frames if one is not frame]
        if not frames:
            raise UsageError(
                "No function of your own has called this one.",
                "step(how='over') goes to the next line; resume() continues.",
            )
    if how != "iteration":
        return Step("over" if how == "line" else how, left, frames)
    for number, one in enumerate(frames):
        function = Function(one.f_code)
        around = function.around(max(0, one.f_lasti))
        if around:
            return Step(how, left, frames[number:], (one, function, around[-1]))
    raise UsageError(
        "There is no loop around this line.", "step(how='over') goes to the next line; resume() continues."
    )


def _outwards(frame: FrameType | None) -> Iterable[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
