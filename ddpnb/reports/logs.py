"""A log as its formats get it: plain text, and which rank wrote each line.

Colours, carriage returns and the prefixes of launchers (``[rank3]:``, ``[default3]:``, srun's ``3:``, mpirun's
``[1,3]<stderr>:``) are taken off; a prefix that names a rank says who speaks.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

from ddpnb.reports.facts import NOBODY, Speaker

LONGEST_LINE = 100_000  # characters: the rest of a longer line is left out
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,16}[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")
_PREFIX = re.compile(
    r"\s{0,4}(?:\[(?:rank|default|trainer|worker)? ?(?P<a>\d{1,6})\]:\s?|\[\d{1,6},(?P<b>\d{1,6})\](?:<\w{1,10}>)?:?\s?"
    r"|(?P<c>\d{1,5}):\s)"
)


@dataclass(frozen=True)
class Log:
    r"""The text of a log, cleaned.

    Args:
        path: the file's name, for messages.
        text: all lines, without colours and prefixes, joined with ``\n``.
        starts: the offset in ``text`` at which each line begins.
        speakers: who wrote each line.
    """

    path: str
    text: str
    starts: list[int] = field(default_factory=list[int], repr=False)
    speakers: list[Speaker] = field(default_factory=list[Speaker], repr=False)

    def speaker_at(self, offset: int) -> Speaker:
        """Who wrote the line with this offset in ``text``, as its prefix says."""
        line = bisect_right(self.starts, offset) - 1
        return self.speakers[line] if 0 <= line < len(self.speakers) else NOBODY


def read(path: str, raw: str) -> Log:
    """Clean a log."""
    text = _ESCAPE.sub("", raw.replace("\r\n", "\n"))
    lines: list[str] = []
    starts: list[int] = []
    speakers: list[Speaker] = []
    offset = 0
    for line in text.split("\n"):
        shown = line[:LONGEST_LINE].rpartition("\r")[2]  # a progress bar writes over itself
        prefix = _PREFIX.match(shown)
        rank = next((int(number) for number in prefix.groups() if number), None) if prefix else None
        cleaned = _CONTROL.sub("", shown[prefix.end() :] if prefix else shown)
        lines.append(cleaned)
        starts.append(offset)
        speakers.append(Speaker(rank) if rank is not None else NOBODY)
        offset += len(cleaned) + 1
    return Log(path, "\n".join(lines), starts, speakers)
