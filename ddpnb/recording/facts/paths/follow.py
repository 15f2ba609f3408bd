"""One side of a comparison: the way of a frame from block to block, to where its way joins that of the other side."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto

from ddpnb.recording.facts.paths.frames import BRANCH, CALL, ENTER, HANDLED, RESUME, RETURN, UNWIND, YIELD, Trace
from ddpnb.recording.facts.paths.shapes import END, Shape
from ddpnb.recording.path import MOST, A, B

AT_SITE = (CALL, ENTER, RESUME)
_LEAVES_BLOCK = (BRANCH, RETURN, YIELD)


class Status(Enum):
    REACHED = auto()  # the block where the ways join
    ENDED = auto()  # the function ends before it
    JUMPED = auto()  # to a handler
    OPEN = auto()  # the rank is still in it


@dataclass(slots=True)
class Side:
    """How far one side has been followed. ``inside``: it is behind the beginning of its block."""

    trace: Trace
    limit: int
    frame: int
    place: int
    block: int
    inside: bool
    status: Status = Status.OPEN

    def follow(self, shape: Shape, goals: frozenset[int], target: int) -> bool:
        """Follow it to one of these blocks, from a handler on also to those that are passed behind ``target``; whether it came to one."""
        jumped = False
        while True:
            self.place, self.status, reached = _follow(
                self.trace, self.limit, self.frame, self.place, self.block, self.inside, goals
            )
            if self.status is Status.REACHED:
                self.block, self.inside = reached, False
            if self.status is not Status.JUMPED:
                return jumped
            jumped = True
            self.block, self.inside = shape.block(self.trace.words[self.place] >> A & MOST), False
            self.place += 1
            goals |= shape.passed(target)


def offset_of(word: int) -> int:
    """Where in its function a word is; -1 where that is not known."""
    kind = word & 15
    if kind in (BRANCH, CALL):
        return (word >> A & MOST) - (kind == CALL)
    if kind in (ENTER, RESUME):
        return (word >> B & MOST) - 1
    return -1


def is_behind(shape: Shape, word: int, blocks: frozenset[int]) -> bool:
    """Whether nothing was called in these blocks, that is: whether this word comes behind them."""
    kind = word & 15
    return kind in _LEAVES_BLOCK or (kind in AT_SITE and shape.block(offset_of(word)) not in blocks)


def leave(trace: Trace, place: int, limit: int, first: int, end: int) -> int:
    """The first place of the same frame that is outside these offsets."""
    while place < limit:
        word = trace.words[place]
        if not first <= offset_of(word) < end:
            break
        place = trace.behind(place)
    return place


def _follow(
    trace: Trace, limit: int, frame: int, place: int, block: int, inside: bool, targets: frozenset[int]
) -> tuple[int, Status, int]:
    """Follow a frame to the first of some blocks, or to its end."""
    shape, words = trace.shape(frame), trace.words
    hot: Collection[int] = trace.hot.get(trace.code[frame], ())
    while True:
        chain = shape.chain(block)
        cut = -1
        if targets:
            cut = next((at for at in range(int(inside), len(chain)) if chain[at] in targets), -1)
        before = chain[:cut] if cut >= 0 else ()
        reached = chain[cut] if cut >= 0 else END
        while True:  # what is in this row of blocks
            if place >= limit:
                return limit, Status.REACHED if cut >= 0 else Status.OPEN, reached
            word = words[place]
            kind = word & 15
            if kind in AT_SITE:
                offset = offset_of(word)
                if cut >= 0 and shape.block(offset) not in before:
                    return place, Status.REACHED, reached
                if hot and cut < 0 and offset >= 0 and shape.block(offset) not in chain:
                    place, block = _behind_hot(trace, shape, chain, hot, limit, place)
                    inside = False
                    break
                place = trace.behind(place)
                if place >= limit:
                    return limit, Status.OPEN, END
            elif kind == BRANCH:
                if cut >= 0:
                    return place, Status.REACHED, reached
                if hot and shape.block(offset_of(word)) not in chain:
                    place, block = _behind_hot(trace, shape, chain, hot, limit, place)
                    inside = False
                    break
                block, inside = shape.block(word >> B & MOST), False
                place += 1
                break
            elif kind in (HANDLED, UNWIND):
                raised = trace.raised.get(place, (-1, ""))[0]
                if cut >= 0 and shape.block(raised) not in before:
                    return place, Status.REACHED, reached
                return place, Status.JUMPED if kind == HANDLED else Status.ENDED, END
            else:
                for jump in hot if cut < 0 else ():
                    behind = shape.chain(shape.behind(shape.block(jump))) if shape.block(jump) in chain else ()
                    reached = next((one for one in behind if one in targets), END)
                    if reached != END:
                        return place, Status.REACHED, reached
                return place, Status.REACHED if cut >= 0 else Status.ENDED, reached


def _behind_hot(
    trace: Trace, shape: Shape, chain: tuple[int, ...], hot: Collection[int], limit: int, place: int
) -> tuple[int, int]:
    """The place and the block behind a loop whose jumps were not recorded any more; where there is none, the block of this place."""
    here = shape.block(offset_of(trace.words[place]))
    for jump in hot:
        if shape.block(jump) in chain:
            first, end = shape.loop(jump)
            left = leave(trace, place, limit, first, end)
            behind = shape.behind(shape.block(jump))
            if left > place or here in shape.chain(behind):
                return left, behind
    return place, here
