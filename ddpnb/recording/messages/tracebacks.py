"""Exceptions found in a text: the class, the message, the frames, the quoted source lines.

Every line is read once. Ranks that write into one log are told apart by the launcher's prefixes
(``[rank1]:``, ``[default0]:``, srun's ``1:``), so that their tracebacks do not mix.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ddpnb.recording.stacks import Frame

_PREFIX = re.compile(
    r"\s{0,4}(?:\[(?:rank|default|trainer|worker)? ?\d{1,6}(?:,\d{1,6})?\](?:<\w{1,10}>)?:\s?|\d{1,5}:\s){1,3}"
)
_FRAME = re.compile(r'\s{1,12}File "([^"\n]{1,1000})", line (\d{1,9})(?:, in (.{1,200}))?$')
_HEAD = re.compile(r"((?:[A-Za-z_]\w{0,80}\.){0,8}[A-Za-z_]\w{0,80})(?:: ?(.*))?$", re.DOTALL)
_KINDS = ("Error", "Exception", "Timeout", "Interrupt", "Iteration", "CollectiveMismatch")
_START = re.compile(
    r"\s{0,12}(?:\w{1,20} )?Traceback \(most recent call last\)|-- Process \d{1,6} terminated with the following error"
)
_CHAIN = re.compile(r"The above exception was the direct cause|During handling of the above exception")
_STOP = re.compile(
    r"\s{0,2}(?:=====|-----|Exception raised from |frame #\d|\[[WEIF]\d|\[[WEI] |[EWI]\d{4} |During handling|The above exception|terminate called|Fatal Python error)"
)
_OWN = re.compile(
    r"site-packages/|dist-packages/|/lib/python3|<(?:frozen|ddpnb) |/ddpnb/(?:recorder|processes)/|^<string>$|/torch/"
)
_LONGEST_MESSAGE = 2_000  # lines
_LONGEST_LINE = 200_000
_MOST_FRAMES = 256


def of_user(file: str) -> bool:
    """Whether a file is the user's: neither a library's nor ddpnb's."""
    return not _OWN.search(file.replace("\\", "/"))


@dataclass(frozen=True, slots=True)
class LoggedError:
    """An exception in a text. ``cause``: the message of the one that it was raised from."""

    exception: str
    message: str
    frames: tuple[Frame, ...] = ()
    quoted: Mapping[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    cause: str = ""
    line: int = 0
    rank: int | None = None


class _Stream:
    """The lines of one rank, as they come."""

    def __init__(self, rank: int | None = None) -> None:
        self.rank = rank
        self.errors: list[LoggedError] = []
        self._frames: list[Frame] = []
        self._quoted: dict[tuple[str, int], str] = {}
        self._message: list[str] | None = None
        self._exception = ""
        self._at = 0
        self._cause = ""
        self._wants_quote = False

    def feed(self, number: int, line: str) -> None:
        if frame := _FRAME.match(line):
            self.close()
            self._add(
                Frame(
                    frame[1],
                    int(frame[2]),
                    (frame[3] or "<module>").strip(),
                    of_user(frame[1]),
                )
            )
        elif self._wants_quote and line.startswith(" "):
            place = self._frames[-1]
            self._quoted[place.file, place.line] = line.strip()[:2000]
            self._wants_quote = False
        elif _START.match(line):
            self.close()
            self._frames, self._quoted, self._wants_quote = [], {}, False
        elif _CHAIN.search(line):
            self.close()
            self._cause = self.errors[-1].message[:4000] if self.errors and "direct cause" in line else ""
        elif head := self._head(line):
            self.close()
            self._exception, self._message, self._at = head[1], [head[2] or ""], number
        elif self._message is not None:
            if _STOP.match(line) or len(self._message) >= _LONGEST_MESSAGE:
                self.close()
            else:
                self._message.append(line)

    def _add(self, frame: Frame) -> None:
        self._wants_quote = True
        self._frames = [*self._frames[-_MOST_FRAMES:], frame] if len(self._frames) > 2 * _MOST_FRAMES else self._frames
        self._frames.append(frame)

    def _head(self, line: str) -> re.Match[str] | None:
        head = _HEAD.match(line) if line[:1].isalpha() or line[:1] == "_" else None
        if head is None:
            return None
        module, _, name = head[1].rpartition(".")
        if name.startswith("nccl"):
            return None  # NCCL's name of an error, in the message of torch's
        below_frames = bool(self._frames) and self._message is None  # there the name of any class is an exception's
        of_module = module and (name.endswith("error") or (below_frames and name[:1].isupper()))
        return head if name.endswith(_KINDS) or of_module else None

    def close(self) -> None:
        if self._message is not None:
            message = "\n".join(self._message).strip()
            frames = tuple(self._frames[-_MOST_FRAMES:])
            self.errors.append(
                LoggedError(self._exception, message, frames, dict(self._quoted), self._cause, self._at, self.rank)
            )
            self._frames, self._quoted, self._message, self._cause = [], {}, None, ""
            self._wants_quote = False


def read(text: str) -> list[LoggedError]:
    """The exceptions of a text, in its order."""
    streams: dict[str, _Stream] = {}
    for number, line in enumerate(text.splitlines()):
        prefix = _PREFIX.match(line)
        key = prefix[0].strip() if prefix else ""
        if key not in streams and len(streams) > 4096:
            key = ""
        rest = (line[prefix.end() :] if prefix else line)[:_LONGEST_LINE]
        if key not in streams:
            rank = re.search(r"\d+", key)
            streams[key] = _Stream(int(rank[0]) if rank else None)
        streams[key].feed(number, rest)
    errors: list[LoggedError] = []
    for stream in streams.values():
        stream.close()
        errors += stream.errors
    return sorted(errors, key=lambda error: error.line)
