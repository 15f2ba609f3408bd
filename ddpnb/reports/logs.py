r"""A log as its formats get it: plain text, and which process wrote each line.

Colours, control characters and the prefixes of launchers are taken off: ``[rank3]:``, ``[default3]:``, srun's ``3:``, mpirun's
``[1,3]<stderr>:``, horovodrun's ``[3]<stderr>:``, pdsh's ``node1:``, Ray's ``(RayTrainWorker pid=1, ip=10.0.0.1)``, and before them the times and names of
containers. A prefix says who speaks; the path of a file says it where no line does.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache

from ddpnb.recording.names import UNDECODABLE, one_line
from ddpnb.reports.facts import NOBODY, Speaker

LONGEST_LINE = 100_000  # characters: the rest of a longer line is left out
MOST_LINES = 1_000_000  # the last ones
_FAR = 300  # characters before torchrun's prefix
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,16}[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")
_LAYER = re.compile(
    # a time
    r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\s"
    # a quotation in an issue or a mail
    r"|>\s"
    # Kaggle's notebooks: the time and the number of a line
    r"|\d{1,7}\.\d{1,3}s\t\d{1,9}\t"
    # the consoles of clouds: a table of times and lines
    r"|\s{0,4}\|\s(?=\d{4}-\d\d-\d\dT)|\d{4}-\d\d-\d\dT[\d:.]{5,24}Z?\s\|\s"
    # containers: the time of a line, the name of a pod, docker compose's service
    r"|\d{4}-\d\d-\d\dT[\d:.]{5,24}(?:Z|[+-]\d\d:?\d\d)\s(?:std(?:out|err) [FP] )?"
    r"|\[pod/(?P<pod>[\w.-]{1,120})/[\w.-]{1,120}\]\s"
    # Ray's actors
    r"|\(\w{1,80}(?:\(\w{1,40}\))? pid=(?P<pid>\d{1,10})(?:, ip=(?P<ip>[\w.:-]{1,64}))?\)\s?"
    # a number before torchrun's prefix; torchrun, mpirun, srun -l
    r"|\[\d{1,10}\]\s{1,4}(?=\[(?:rank|default)\d)"
    r"|\[(?:rank|default|trainer|worker)? ?(?P<a>\d{1,6})\](?:<\w{1,10}>)?:\s?"
    # a role: a host, and a process of it
    r"|\[\w{1,40}\|\d{1,6}\]:\s?"
    r"|\[\d{1,6},(?P<b>\d{1,6})\](?:<\w{1,10}>)?:?\s?"
    r"|\s{0,4}(?P<c>\d{1,5}):\s"
)
# What shows that torchrun wrote lines too; a traceback of a rank contains torch/distributed/elastic/multiprocessing/errors.
_LAUNCHER = ("torchrun", "torch.distributed.run", "distributed/run.py", "multiprocessing/api", "ChildFailedError")
_FIRST = frozenset("[( \t|>0123456789")  # with which a line with a prefix begins
_HOST = re.compile(r"(?P<host>[A-Za-z][\w.-]{0,63}\d[\w.-]{0,32}):\s")
_SERVICE = re.compile(r"(?P<host>[\w.-]{1,64})\s{1,40}\|\s")
_DATED = re.compile(r"(?P<host>)(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d ")
_INLINE = re.compile(r"\[(?:rank|default)(\d{1,6})\]:")
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
    """

    path: str
    text: str
    starts: list[int] = field(default_factory=list[int], repr=False)
    speakers: list[Speaker] = field(default_factory=list[Speaker], repr=False)

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
        return _speaker(int(inline[1]), 0, "") if inline else self.speakers[line]

    def line(self, number: int) -> str:
        """The text of a line, by its number."""
        end = self.starts[number + 1] - 1 if number + 1 < len(self.starts) else len(self.text)
        return self.text[self.starts[number] : end]


def last_match(pattern: re.Pattern[str], text: str, start: int, end: int) -> re.Match[str] | None:
    """The last place between two offsets of a text that a pattern matches."""
    found = deque(pattern.finditer(text, max(start, 0), end), maxlen=1)
    return found[0] if found else None


@lru_cache(4096)
def _speaker(rank: int | None, pid: int, host: str) -> Speaker:
    return Speaker(rank, pid, one_line(host))


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
    text = raw.replace("\r\n", "\n").replace("\r", "\n")  # a progress bar writes over itself
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    shown = [line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] for line in _lines(text)]
    if text.startswith('{"log":'):
        shown = [_unwrapped(line) for line in shown]
    dirty = _CONTROL.search(text) is not None
    outer, ranked = _outer(shown), "[rank" in text
    launchers = any(word in text for word in _LAUNCHER)
    lines: list[str] = []
    starts: list[int] = []
    speakers: list[Speaker] = []
    offset = 0
    for line in shown:
        speaker = NOBODY
        if outer is not None or line[:1] in _FIRST:
            line, speaker = _without_prefix(line, outer, launchers)
        if (
            ranked
            and speaker.rank is None
            and "[rank" in line[:_FAR]
            and (inline := _INLINE.search(line, 0, _FAR + 12))
        ):
            # behind the name of a host or a stream, or behind a progress bar
            speaker, line = _speaker(int(inline[1]), speaker.pid, speaker.host), line[inline.end() :].removeprefix(" ")
        if dirty:
            line = _CONTROL.sub("", line)
        lines.append(line)
        starts.append(offset)
        speakers.append(speaker)
        offset += len(line) + 1
    of_path = rank_of_path(path)
    if of_path is not None and {speaker.rank for speaker in set(speakers)} <= {None, of_path}:
        speakers = [_speaker(of_path, speaker.pid, speaker.host) for speaker in speakers]
    return Log(path, "\n".join(lines), starts, speakers)


def _lines(text: str) -> list[str]:
    lines = text.rsplit("\n", MOST_LINES)
    return lines if len(lines) <= MOST_LINES else lines[1:]


def _without_prefix(line: str, outer: re.Pattern[str] | None, launchers: bool) -> tuple[str, Speaker]:
    """The text of a line, and who wrote it; ``launchers``: a task of srun may be one, which has ranks of its own."""
    rank, pid, host, end, task = None, 0, "", 0, False
    if outer is not None and (match := outer.match(line)):
        host, end = match["host"], match.end()
    for _ in range(6):
        match = _LAYER.match(line, end)
        if match is None:
            break
        number = match["a"] or match["b"] or match["c"]
        if number is not None:
            if rank is not None and not (task and "rank" in match[0]):
                break  # "[rank3]: 12: text": the second is the text's
            rank, task = int(number), match["c"] is not None
        pid = int(match["pid"]) if match["pid"] else pid
        host = match["ip"] or match["pod"] or host
        end = match.end()
    if task and launchers:
        rank, host = None, host or f"task {rank}"
    return (line[end:], _speaker(rank, pid, host)) if end else (line, NOBODY)


def _outer(lines: list[str]) -> re.Pattern[str] | None:
    """pdsh's and docker compose's prefix, or a date: only where nearly all lines have it, as ``name: text`` is common."""
    sample = [line for line in lines[:2000] if line.strip()]
    for pattern in (_DATED, _HOST, _SERVICE):
        if len(sample) > 3 and sum(pattern.match(line) is not None for line in sample) >= 0.9 * len(sample):
            return pattern
    return None


def _unwrapped(line: str) -> str:
    """A line of docker's log files: ``{"log":"text", "stream":"stderr", "time":"..."}``."""
    if not line.startswith('{"log":'):
        return line
    try:
        return str(json.loads(line)["log"]).rstrip("\n").replace("\n", " ")
    except UNDECODABLE:
        return line
