"""An error, and its explanation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ddpnb.recording.findings import Hint
from ddpnb.recording.split import split
from ddpnb.recording.stacks import Frame

# A message is read up to here: the rest of a longer one is more of the same (keys, C++ frames).
_LONGEST = 200_000
_CPP_TRACE = re.compile(r"\n *(?:Exception raised from |frame #\d+: |C\+\+ CapturedTraceback)")


@dataclass(frozen=True, slots=True)
class Explained:
    """What an error means. The summary is a sentence that can follow "Rank 1: "."""

    code: str
    summary: str
    remedy: str = ""
    evidence: tuple[str, ...] = ()
    # The ranks that the message blames; None: it does not say; (): another, unnamed.
    culprits: tuple[int, ...] | None = None
    missing: tuple[int, ...] = ()  # the ranks that the message says are missing
    tensors: tuple[str, ...] = ()  # names of parameters
    hint: Hint | None = None
    # Of a message that compares ranks: what each of them holds, the one that raised it first (THIS: it does not say which it is).
    holds: Mapping[int, str] = field(default_factory=dict[int, str])
    sides: tuple[tuple[int, ...], ...] = ()  # ranks that differ, and the message does not show who is at fault
    process: int = 0  # the id of the process that a line of a log is about
    signal: str = ""  # what ended that process


THIS = -1  # the rank that raised a message, in ``Explained.holds``
AS_RANK_0 = "what rank 0 holds"  # in ``Explained.holds``


class Blamed(NamedTuple):
    """The ranks that messages blame (None: they do not say); or those that differ, of which nobody is known to be at fault."""

    culprits: tuple[int, ...] | None
    sides: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception as it is explained: its message without C++ frames, its class, where it came from."""

    text: str
    exception: str = ""
    names: Sequence[str] = ()
    frames: Sequence[Frame] = ()
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    quoted: Mapping[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    traceback: str = ""
    frozen: Sequence[str] = ()  # parameters recorded as frozen after wrapping, for whose gradients DDP waits

    @classmethod
    def of(cls, message: str, exception: str = "", **more: object) -> Raised:
        text = message[:_LONGEST]
        trace = _CPP_TRACE.search(text)
        text = text[: trace.start()] if trace else text
        return cls(text.strip(), exception.rsplit(".", 1)[-1].strip(), **more)  # type: ignore[arg-type]

    def line(self, frame: Frame) -> str:
        """The source line of a frame, if it is known."""
        quoted = self.quoted.get((frame.file, frame.line))
        if quoted is not None:
            return quoted
        source = self.sources.get(frame.file, "")
        lines = source.splitlines() if source else []
        return lines[frame.line - 1].strip() if 0 < frame.line <= len(lines) else ""

    @property
    def user_frame(self) -> Frame | None:
        return next((frame for frame in reversed(self.frames) if frame.user), None)

    @property
    def user_line(self) -> str:
        frame = self.user_frame
        return self.line(frame) if frame is not None else ""

    @property
    def lines(self) -> list[str]:
        """The user's innermost line, and the line that raised."""
        return [self.user_line, self.line(self.frames[-1])] if self.frames else []

    def passes(self, part: re.Pattern[str]) -> bool:
        """Whether it came through a file with this in its path."""
        return any(part.search(frame.file.replace("\\", "/")) for frame in self.frames)

    def calls(self, *functions: str) -> bool:
        """Whether it came through a function of this name, called by the user's innermost line."""
        frame = self.user_frame
        last = max((i for i, f in enumerate(self.frames) if f is frame), default=-1)
        return any(f.function in functions for f in self.frames[last + 1 :])


def blamed(explanations: Mapping[int, Explained], world_size: int = 0, passed: Iterable[int] = ()) -> Blamed:
    """The ranks that the messages of several ranks blame together, or those that they only compare.

    DDP compares the number of a model's parameters with that of the first rank that differs, and their sizes with those of
    rank 0: the rank that raises is not the one that is at fault. Those outside of the majority are, if it is known who that is.

    Args:
        explanations: the explanation of each rank's exception, by the rank that raised it.
        world_size: 0 if it is not known.
        passed: ranks whose comparison with rank 0 succeeded.
    """
    if explanations and all(one.holds for one in explanations.values()):
        return _outside_of_majority(_held(explanations, passed), world_size)
    named = [one.culprits for one in explanations.values() if one.culprits is not None]
    return Blamed(tuple(sorted({rank for culprits in named for rank in culprits})) if named else None)


def _held(explanations: Mapping[int, Explained], passed: Iterable[int]) -> dict[int, str]:
    """What each rank holds, as far as messages say."""
    held = {rank: next(iter(one.holds.values())) for rank, one in explanations.items()}
    for rank, one in explanations.items():
        raised, *others = one.holds
        if raised in (rank, THIS):  # else they are counted in a smaller group
            for other in others:
                held.setdefault(other, one.holds[other])
    if any(AS_RANK_0 in one.holds.values() for one in explanations.values()):
        for rank in passed:
            held.setdefault(rank, AS_RANK_0)
    held.pop(THIS, None)
    return held


def _outside_of_majority(held: Mapping[int, str], world_size: int) -> Blamed:
    apart = split(held, world_size - len(held))
    if not apart.differs:
        return Blamed(None)
    return Blamed(None, apart.sides) if apart.tied else Blamed(apart.culprits)
