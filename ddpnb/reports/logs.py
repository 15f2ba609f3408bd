r"""A log as its formats get it: plain text, and which process wrote each line.

Colours, control characters and prefixes (``prefixes.py``) are taken off, records of collectors (``records.py``) and what was pasted
(``pasted.py``) become lines again. A prefix or a heading says who speaks; the path of a file says it where no line does.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from ddpnb.recording.report import LogLine
from ddpnb.reports import pasted, prefixes, records
from ddpnb.reports.facts import NOBODY, Origin, Speaker
from ddpnb.reports.prefixes import speaker

LONGEST_LINE = 100_000  # characters: the rest of a longer line is left out
MOST_LINES = 1_000_000  # the last ones
_FAR = 300  # characters before torchrun's prefix
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,16}[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[@-Z\\-_])")
_BAR = re.compile(
    r"(?<![^\r\n])[^\r\n\[|]{0,80}\d%\|[^\r\n|\[]{0,300}\| [^\r\n\]]{0,100}\]?\r(?!\n)"
)  # which writes over itself
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")
# What shows that torchrun wrote lines too; a traceback of a rank contains torch/distributed/elastic/multiprocessing/errors.
_LAUNCHER = ("torchrun", "torch.distributed.run", "distributed/run.py", "multiprocessing/api", "ChildFailedError")
_TRACEBACK = "Traceback (most recent call last)"
_INLINE = re.compile(r"\[(?:rank|default)(\d{1,6})\]:")
_LOCAL = re.compile(r"^\[default(\d{1,6})\]:", re.MULTILINE)
_LOCAL_AND_GLOBAL = re.compile(r"^\[default(\d{1,6})\]:\s?\[rank(\d{1,6})\]:", re.MULTILINE)
_HEAD = re.compile(
    r"(?:[\w.]{1,200}(?:Error|Exception|Interrupt)\b|\s|During handling|The above exception|Traceback|$)"
)
_OF_PATH = re.compile(
    r"(?:^|[/\\])attempt_\d{1,6}[/\\](\d{1,6})[/\\][^/\\]{0,200}$"
    r"|(?:^|[^A-Za-z])(?<!local[_-])(?<!node[_-])(?<!group[_-])(?<!lora[_-])rank[ _.=-]?(\d{1,6})(?!\d)[^/\\]{0,80}$"
    r"|(?:^|[/\\])(?:global_)?rank[_.=-]?(\d{1,6})[/\\][^/\\]{0,80}$"
    r"|(?:^|[^A-Za-z])worker[ _.=-]?(\d{1,6})(?:\.[^/\\]{0,20}|[/\\]std(?:out|err)[^/\\]{0,20})?$",
    re.IGNORECASE,
)


def rank_of_path(path: str) -> int | None:
    """The rank that the name of a file says: ``attempt_0/3/stderr.log``, ``rank3.log``, ``rank_3.err``, ``worker-3.log``."""
    match = _OF_PATH.search(path[-1000:])
    return next((int(number) for number in match.groups() if number), None) if match else None


@dataclass(frozen=True)
class Log:
    r"""The text of a log, cleaned.

    Args:
        path: the file's name, for messages.
        text: all lines, without colours and prefixes, joined with ``\n``.
        starts: the offset in ``text`` at which each line begins.
        speakers: who wrote each line.
        origin: what is known of the file (``origin.py``).
    """

    path: str
    text: str
    starts: list[int] = field(default_factory=list[int], repr=False)
    speakers: list[Speaker] = field(default_factory=list[Speaker], repr=False)
    origin: Origin = field(default_factory=Origin, repr=False)

    def line_at(self, offset: int) -> int:
        """The number of the line, from 0, with this offset in ``text``."""
        return max(bisect_right(self.starts, offset) - 1, 0)

    def speaker_at(self, offset: int) -> Speaker:
        """Who wrote the line with this offset in ``text``, as its prefix says, also one within the line before the offset."""
        line = self.line_at(offset)
        if line >= len(self.speakers):
            return NOBODY
        # A rank writes behind the progress bar of another: the prefix is then within the line.
        inline = last_match(_INLINE, self.text, max(self.starts[line], offset - 2000), offset)
        return speaker(int(inline[1]), 0, "") if inline else self.speakers[line]

    def quoted(self, offset: int, end: int | None = None) -> LogLine:
        """The line with this offset in ``text``, with its words from there on, to ``end`` at the most."""
        line = self.line_at(offset)
        stop = self.starts[line + 1] - 1 if line + 1 < len(self.starts) else len(self.text)
        return self.origin.quoted(self.path, line, self.text[offset : min(stop, end or stop)])

    def line(self, number: int) -> str:
        """The text of a line, by its number."""
        end = self.starts[number + 1] - 1 if number + 1 < len(self.starts) else len(self.text)
        return self.text[self.starts[number] : end]


def last_match(pattern: re.Pattern[str], text: str, start: int, end: int) -> re.Match[str] | None:
    """The last place between two offsets of a text that a pattern matches."""
    found = deque(pattern.finditer(text, max(start, 0), end), maxlen=1)
    return found[0] if found else None


def read(path: str, raw: str) -> Log:
    """Clean a log.

    Args:
        path: the file's name, from which the rank is read where no line names one.
        raw: its text.

    Returns:
        The lines without prefixes, each with its speaker.

    Example:
        >>> log = read("train.log", "[rank3]: RuntimeError: boom")
        >>> log.text, log.speakers[0].rank
        ('RuntimeError: boom', 3)
    """
    text = raw
    if "\r" in raw:
        text = without_bars(raw).replace("\r\n", "\n").replace("\r", "\n")
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    text = _with_global_ranks(records.lines_of(pasted.without_markup(text)))
    shown = [line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] for line in _lines(text)]
    lines, speakers = _without_layers(pasted.lines_of(shown, fenced="```" in text or "~~~" in text), text)
    log = _joined(path, lines, speakers)
    log = _without_learned(log)
    _continue(log)
    for first, end, rank in _sections(log):
        for line in range(first, end):
            if log.speakers[line] == NOBODY:
                log.speakers[line] = speaker(rank, 0, "")
    of_path = rank_of_path(path)
    if of_path is not None and {one.rank for one in set(log.speakers)} <= {None, of_path}:
        log.speakers[:] = [speaker(of_path, one.pid, one.host) for one in log.speakers]
    return log


def without_bars(raw: str) -> str:
    """A text without progress bars that a later one was written over."""
    return _BAR.sub("", raw) if "%|" in raw and "\r" in raw else raw


def _joined(path: str, lines: list[str], speakers: list[Speaker]) -> Log:
    starts = list(accumulate((len(line) + 1 for line in lines[:-1]), initial=0))
    return Log(path, "\n".join(lines), starts, speakers)


def _lines(text: str) -> list[str]:
    lines = text.rsplit("\n", MOST_LINES)
    return lines if len(lines) <= MOST_LINES else lines[1:]


def _with_global_ranks(text: str) -> str:
    """torchrun's ``[default6]:`` names the local rank: on a second node other lines of the process say that it is rank 14."""
    both = set(_LOCAL_AND_GLOBAL.findall(text)) if "[default" in text else set[tuple[str, str]]()
    if all(local == rank for local, rank in both):
        return text
    ranks = dict(both) if len(dict(both)) == len(both) else {}
    text = re.sub(r"(?m)^\[default\d{1,6}\]:\s?(?=\[rank\d)", "", text)
    return _LOCAL.sub(lambda match: f"[rank{ranks[match[1]]}]:" if match[1] in ranks else "", text)


def _without_layers(shown: list[str], text: str) -> tuple[list[str], list[Speaker]]:
    """The lines without the prefixes of known launchers, and who wrote each."""
    dirty = _CONTROL.search(text) is not None
    outer, ranked = prefixes.outer(shown), "[rank" in text
    launchers = any(word in text for word in _LAUNCHER)
    lines: list[str] = []
    speakers: list[Speaker] = []
    for line in shown:
        who = NOBODY
        if outer is not None or line[:1] in prefixes.FIRST:
            line, who = prefixes.without_layers(line, outer, launchers)
        if ranked and who.rank is None and "[rank" in line[:_FAR] and (inline := _INLINE.search(line, 0, _FAR + 12)):
            # behind the name of a host or a stream, or behind a progress bar
            who, line = speaker(int(inline[1]), who.pid, who.host), line[inline.end() :].removeprefix(" ")
        lines.append(_CONTROL.sub("", line) if dirty else line)
        speakers.append(who)
    return lines, speakers


def _without_learned(log: Log) -> Log:
    """Without indentation, and without prefixes that the log itself shows."""
    lines = log.text.split("\n")
    places = prefixes.anchors(log.starts, log.text)
    pattern = prefixes.learned(lines, places)
    if pattern is not None:
        parts = list(prefixes.without_learned(lines, pattern))
        lines = [text for text, _ in parts]
        both = zip(log.speakers, (who for _, who in parts), strict=True)
        speakers = [
            speaker(new.rank if old.rank is None else old.rank, old.pid or new.pid, old.host or new.host)
            for old, new in both
        ]
        log = _joined(log.path, lines, speakers)
        places = prefixes.anchors(log.starts, log.text)
    return _joined(log.path, lines, log.speakers) if pasted.dedented(lines, places) else log


def _continue(log: Log) -> None:
    """A prefix before the first line of a traceback alone, as loggers write it, counts for all its lines."""
    start = log.text.find(_TRACEBACK)
    while start >= 0:
        number = log.line_at(start)
        who = log.speakers[number]
        following = number + 1
        while who != NOBODY and following < len(log.speakers) and log.speakers[following] == NOBODY:
            line = log.line(following)
            if not _HEAD.match(line):
                break
            log.speakers[following] = who
            following += 1
            if line[:1].strip() and "Error" in line:
                break
        start = log.text.find(_TRACEBACK, start + 1)


def _sections(log: Log) -> Iterator[tuple[int, int, int | None]]:
    """(first line, where it ends, the rank) of the parts of a log below headings that name ranks."""
    found = [(log.line_at(start), rank) for start, rank in pasted.headings(log.text, rank_of_path)]
    for (first, rank), (end, _) in pairwise([*found, (len(log.speakers), None)]):
        yield first, end, rank
