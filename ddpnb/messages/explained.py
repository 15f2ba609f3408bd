"""An error, and its explanation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ddpnb.model.findings import Hint
from ddpnb.model.stacks import Frame

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


def blamed(explanations: Mapping[int, Explained], world_size: int = 0) -> tuple[int, ...] | None:
    """The ranks that the messages of several ranks blame together.

    DDP compares a model's parameters with those of the first rank that differs, so the odd rank blames
    an innocent one and the others blame the odd one: votes decide (one against one, the lowest rank's).
    Their sizes are compared with rank 0 alone: if all others complain of themselves, it is rank 0.

    Args:
        explanations: the explanation of each rank's exception, by the rank that raised it.
        world_size: 0 if it is not known.
    """
    named = {
        rank: explained.culprits for rank, explained in sorted(explanations.items()) if explained.culprits is not None
    }
    if not named:
        return None
    together = tuple(sorted({rank for culprits in named.values() for rank in culprits}))
    if any(explained.code != "DDP403" for explained in explanations.values()):
        return together
    if all(culprits == (rank,) for rank, culprits in named.items()):
        return (0,) if len(named) > 1 and together == tuple(range(1, world_size)) else together
    votes = Counter(rank for culprits in named.values() for rank in culprits)
    most = {rank for rank, count in votes.items() if count == max(votes.values())}
    first = next(set(culprits) for culprits in named.values())
    return tuple(sorted(most & first or most))
