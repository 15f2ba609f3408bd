r"""What launchers and collectors put before a line: one grammar.

A prefix is a sequence of layers. Those of known launchers are recognised in any line: ``[rank3]:``, ``[default3]:``, srun's ``3:``,
mpirun's ``[1,3]<stderr>:``, ``(Worker[rank=3] pid=1, ip=10.0.0.1)``, the times of containers. Any other prefix is learned from the
log itself: some lines (the head of a traceback, a row of torchrun's table, a message of the watchdog) begin with words that nothing
stands before in the output of a process. What stands before them, with other numbers and levels, is the prefix of the other lines too.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice

from ddpnb.recording.names import one_line
from ddpnb.reports.facts import NOBODY, Speaker

FIRST = frozenset("[( \t|>0123456789")  # with which a line with a known layer begins
_TIME = r"\d{4}-\d\d-\d\dT[\d:.]{5,24}"
_LAYER = re.compile(
    # a time
    r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\s"
    # a quotation in an issue or a mail
    r"|>(?=>\s)|>\s"
    # Kaggle's notebooks: the time and the number of a line
    r"|\d{1,7}\.\d{1,3}s\t\d{1,9}\t"
    # the consoles of clouds: a table of times and lines
    rf"|\s{{0,4}}\|\s(?={_TIME})|{_TIME}Z?\s\|\s"
    # containers: the time of a line, the name of a pod, docker compose's service
    rf"|\[?{_TIME}(?:Z\]?|[+-]\d\d:?\d\d\]?)\s(?:std(?:out|err) [FP] )?"
    r"|\[pod/(?P<pod>[\w.-]{1,120})/[\w.-]{1,120}\]\s"
    # what names a rank or a process: Ray's actors, SkyPilot, Determined, Lightning, NeMo
    r"|(?P<named>\((?:[^()\n]|\(\w{1,40}\)){0,120}?\b(?:pid|rank)=\d(?:[^()\n]){0,120}\)\s?"
    r"|(?:\w{1,40} )?\[[^\[\]\n]{0,60}?\brank[=:]\s?\d{1,6}[^\[\]\n]{0,40}\](?::|\s\|\|)?\s?"
    r"|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d TP\d{1,4}(?: EP\d{1,4})?\]\s"
    r"|\[\d{1,6},mpirank:\d{1,6},[\w.-]{1,64}\](?:<\w{1,10}>)?:?\s?)"
    # a number before torchrun's prefix; torchrun, mpirun, srun -l; not a number of torchrun's table, alone in its line
    r"|\[\d{1,10}\]\s{1,4}(?=\[(?:rank|default)\d)"
    r"|(?!\[\d{1,6}\]:\s*$)\[(?:rank|default|trainer|worker)? ?(?P<a>\d{1,6})\](?:<\w{1,10}>)?:\s?"
    # a role: a host, and a process of it
    r"|\[\w{1,40}\|\d{1,6}\]:\s?"
    r"|\[\d{1,6},(?P<b>\d{1,6})\](?:<\w{1,10}>)?:?\s?"
    r"|\s{0,4}(?P<c>\d{1,5}):\s"
)
_TORCHRUN = re.compile(r"\[rank(\d{1,6})\]: ?(?![\s\[(>|])(?!\d(?!\d{3}-\d\d-\d\d ))")  # without another layer
_HOST = re.compile(r"(?P<host>[A-Za-z][\w.-]{0,63}\d[\w.-]{0,32}|(?:\d{1,3}\.){3}\d{1,3}):\s")
_SERVICE = re.compile(r"(?P<host>[\w.-]{1,64})\s{1,40}\|\s")
_DATED = re.compile(r"(?P<host>)(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d ")

_RANK = re.compile(
    r"(?<![A-Za-z_])(?<!local[ -])(?<!node[ -])(?<!group[ -])(?:global[ _-]?|world[ _-]?|mpi)?rank[ :=#_-]{0,3}(\d{1,6})(?!\d)"
    r"|\[(?:default|trainer)(\d{1,6})\]|\[\d{1,6},(\d{1,6})\]"
    # SGLang, vLLM: one world, but with DP, which makes several
    r"|(?<=:\d\d )TP(\d{1,4})(?= EP\d{1,4}\]|\])|\bWorker_TP(\d{1,4})(?:_EP\d{1,4})?(?= pid=)",
    re.IGNORECASE,
)
_ONLY_NUMBER = re.compile(r"\s{0,8}[\[(<]?(\d{1,6})[\])>]?\s{0,2}[:|>]?\s{0,4}$")
_PID = re.compile(r"\bpid=(\d{1,10})\b")
_ADDRESS = re.compile(r"\bip=([\w.:-]{1,64})")
_NAME = re.compile(
    r"(?<![\w./:-])(?=[\w./-]{0,64}[A-Za-z])(?=[\w./-]{0,64}\d)[\w./-]{2,64}(?![\w./]|:\d)|(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])"
)
_NO_NAME = re.compile(
    r"\d{4}-\d\d|(?!(?:\d{1,3}\.){3}\d{1,3}$)\d[\d.:,TZ+-]{3,30}Z?$|[EWIF]\d{4}$|\w{1,40}\.py$|(?:Worker_)?(?:[DPTE]P\d{1,4}_?){1,4}$|(?i:[a-z_]{0,12}rank)[ :=#_-]{0,3}\d"
)

#: what begins a line in the output of a process: plain text that it contains, for which a search is fast, and a pattern
_ANCHORS = tuple(
    (word, re.compile(pattern))
    for word, pattern in (
        ("Traceback (most", r"Traceback \(most recent call last\)"),
        ('  File "', r'  File "[^"\n]{1,300}", line \d'),
        ("ChildFailedError", r"torch\.distributed\.elastic\.multiprocessing\.errors\.ChildFailedError"),
        ("=" * 40, r"(?<!=)={40,}(?=\n|$)"),
        ("Root Cause (", r"Root Cause \(first observed"),
        ("exitcode", r"  (?:rank|time|exitcode)\s{1,12}: \S"),
        (".cpp:", r"\[(?:[EWIF]\d{3,4} \d\d:\d\d:\d\d|[EWI] \w{1,40}\.cpp:)"),
        ("Process ", r"Process \d{1,10}: "),
        ("call first)", r"(?:Current thread|Thread) 0x[0-9a-f]"),
        ("Thread ", r"Thread \d{1,20} \((?:idle|active)"),
        ("Fatal Python", r"Fatal Python error: "),
        ("] NCCL ", r"(?<=[ \n])[A-Za-z][\w.-]{0,100}:\d{1,10}:\d{1,10} \[\d{1,4}\] NCCL "),
    )
)
_BEHIND = re.compile(r"\[rank\d{1,6}\]:")  # what a rank writes behind the progress bar of another
_MOST = 400  # places of each of them
_LONGEST = 200  # characters of a learned prefix
_TOKEN = re.compile(r"\d+|\w+|[^\S\n]+|[^\w\s]")
_LEVELS = frozenset(["DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL", "FATAL", "NOTICE", "E", "W", "I", "F"])


@lru_cache(4096)
def speaker(rank: int | None, pid: int, host: str) -> Speaker:
    return Speaker(rank, pid, one_line(host))


@lru_cache(4096)
def who(prefix: str) -> Speaker:
    """Whom a prefix names, whatever its form: ``2026-05-19 10:10:29 node-3 [RANK 1] ERROR``."""
    rank = _RANK.search(prefix) or _ONLY_NUMBER.match(prefix)
    pid, address = _PID.search(prefix), _ADDRESS.search(prefix)
    name = next((one[0] for one in _NAME.finditer(prefix) if not _NO_NAME.match(one[0])), "") if not address else ""
    number = next((int(one) for one in rank.groups() if one), None) if rank else None
    return speaker(number, int(pid[1]) if pid else 0, address[1] if address else name)


def without_layers(line: str, outer: re.Pattern[str] | None, launchers: bool) -> tuple[str, Speaker]:
    """The text of a line, and who wrote it, by the layers of known launchers.

    Args:
        line: of a log.
        outer: from ``outer()``.
        launchers: a task of srun may be a launcher, which has ranks of its own.
    """
    if outer is None and line[:5] == "[rank" and (match := _TORCHRUN.match(line)):
        return line[match.end() :], speaker(int(match[1]), 0, "")
    rank, pid, host, end, task = None, 0, "", 0, False
    if outer is not None and (match := outer.match(line)):
        rank, host, end = who(match["host"]).rank, match["host"], match.end()
    for _ in range(6):
        match = _LAYER.match(line, end)
        if match is None:
            break
        number = match["a"] or match["b"] or match["c"]
        named = who(match["named"]) if match["named"] else NOBODY
        if number is not None or named.rank is not None:
            if rank is not None and not (task and "rank" in match[0]):
                break  # "[rank3]: 12: text": the second is the text's
            rank, task = named.rank if number is None else int(number), match["c"] is not None
        pid = named.pid or pid
        host = match["pod"] or named.host or host
        end = match.end()
    if task and launchers:
        rank, host = None, host or f"task {rank}"
    return (line[end:], speaker(rank, pid, host)) if end else (line, NOBODY)


def outer(lines: Sequence[str]) -> re.Pattern[str] | None:
    """pdsh's and docker compose's prefix, or a date: only where nearly all lines have it, as ``name: text`` is common."""
    sample = [line for line in lines[:2000] if line.strip()]
    for pattern in (_DATED, _HOST, _SERVICE):
        without = (line for line in sample if not pattern.match(line))
        if len(sample) > 3 and next(islice(without, len(sample) // 10, None), None) is None:
            return pattern
    return None


# -- learned prefixes


def anchors(starts: Sequence[int], text: str) -> list[tuple[int, int]]:
    """(the number of a line, the column) of words that begin a line in the output of a process, each line once."""
    found: dict[int, int] = {}
    for word, pattern in _ANCHORS:
        for match in islice(pattern.finditer(text), _MOST) if word in text else ():
            number = bisect_right(starts, match.start()) - 1
            column = match.start() - starts[number]
            found[number] = min(column, found.get(number, column))
    return sorted(found.items())


def learned(lines: Sequence[str], places: Sequence[tuple[int, int]]) -> re.Pattern[str] | None:
    """The prefixes of a log that no launcher is known for, as one pattern.

    Args:
        lines: of the log, without known layers.
        places: from ``anchors``.
    """
    by_shape: dict[str, list[int]] = {}
    for number, column in places:
        before = lines[number][:column]
        if before.strip() and column <= _LONGEST and not _BEHIND.search(before):
            by_shape.setdefault(_shape(before), []).append(number)
    shapes = [shape for shape, numbers in by_shape.items() if _supported(re.compile(shape), lines, numbers)]
    return re.compile("|".join(sorted(shapes, key=len, reverse=True))) if shapes else None


def _supported(shape: re.Pattern[str], lines: Sequence[str], numbers: Sequence[int]) -> bool:
    """Whether lines beside those have it too, or it names a rank: else it is a word of a message ("Original Traceback")."""
    beside = sum(
        any(shape.match(lines[other]) for other in (number - 1, number + 1) if 0 <= other < len(lines))
        for number in numbers
    )
    match = shape.match(lines[numbers[0]])
    return 2 * beside >= len(numbers) or (match is not None and who(match[0]).rank is not None)


def _shape(prefix: str) -> str:
    """A pattern of a prefix: other numbers, names with numbers, and levels fit too."""
    body = prefix.rstrip()
    tokens = (_generalised(token[0]) for token in _TOKEN.finditer(body))
    blanks = prefix[len(body) :]
    return "".join(tokens) + (f"(?:{re.escape(blanks)}|$)" if blanks else "")


def _generalised(token: str) -> str:
    if token.isspace():
        return r"[^\S\n]{1,40}"
    if token.isdigit():
        return r"\d{1,20}"
    if token in _LEVELS:
        return r"[A-Za-z]{1,10}"
    return r"\w{1,80}" if any(map(str.isdigit, token)) else re.escape(token)


def without_learned(lines: Sequence[str], pattern: re.Pattern[str]) -> Iterator[tuple[str, Speaker]]:
    """The lines without learned prefixes, and whom these name."""
    for line in lines:
        match = pattern.match(line)
        yield (line[match.end() :], who(match[0])) if match else (line, NOBODY)
