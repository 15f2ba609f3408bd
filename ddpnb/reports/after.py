"""What a process wrote after an exception: whether it continued, so that the exception was handled.

An exception that is logged and retried looks like one that ended the process, but for what comes behind it.
"""

from __future__ import annotations

import re
from collections import defaultdict

from ddpnb.reports.facts import NOBODY, Speaker
from ddpnb.reports.logs import Log

#: what a program that came to its end leaves as the last lines of a log
_WELL = re.compile(
    r"process group has NOT been destroyed|^wandb: |Destroy COMPLETE|leaked \w{1,40} objects|^\W{0,80}$|\b(?:[Dd]one|[Ff]inished|[Cc]ompleted?)\b"
)
#: what launchers, the watchdog and shells write where a process failed
_FAILED = re.compile(
    r"closing signal|Killing subprocess|exit ?code|ChildFailedError|return code|Watchdog caught|terminate called|srun: error|slurmstepd: error"
    r"|core dumped|\bKilled\b|exit type|sigquit|avoid zombies"
)
_SEVERAL = 2  # lines of work: another process may write one before it sees the failure
_FAR = 400  # lines behind an exception that are looked at
_SAMPLE = 20_000  # lines of a log in which those that occur again are looked for
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*(?:e[+-]?\d+)?")
#: lines that belong to an exception, or that a process writes while it ends
_OF_THE_END = re.compile(
    r"^\s|^$|^(?:Traceback|Exception |terminate called|Fatal Python|frame #|#\d|C\+\+|During handling|The above exception|wandb:"
    r"|For debugging|Compile with|Last error|nccl\w{1,30}Error|CUDA kernel errors|\*{3}|={4,}|-{4,}|\[[WEIF]\d|\[rank|\[PG |\[Rank )"
    r"|^(?:[A-Za-z_]\w{0,80}\.){0,8}[A-Za-z_]\w{0,80}(?:Error|Exception|Interrupt|Warning)\b"
    r"|process group|ProcessGroup|destroy|leaked|resource_tracker|core dumped|exit|abort|fail|error",
    re.IGNORECASE,
)
#: lines of training and of serving, and what programs say once they have handled an exception
_WORK = re.compile(
    r"\b(?:step|epoch|iter(?:ation)?|batch|loss|lr)\b[^\n]{0,40}\d|\d{1,3}%\|"
    r"|\b(?:succeeded|success|recovered|falling back|fall back|fallback|using the|using a|retrying|continuing|resum(?:ed|ing)|reconnected|ignored"
    r"|training (?:finished|complete[d]?|done)|finished training|saved?(?: model| checkpoint)|skipp(?:ed|ing))\b"
    r"|\b(?:attempt|try|retry) \d|\bthroughput\b[^\n]{0,40}\d|\"POST [^\n]{1,200} HTTP/[\d.]{1,3}\" 2\d\d\b",
    re.IGNORECASE,
)


def usual_lines(log: Log) -> frozenset[str]:
    """The lines, without their numbers, that several processes or one process often wrote: those of training."""
    speakers: dict[str, set[tuple[Speaker, str]]] = defaultdict(set)
    for number in range(min(len(log.starts), _SAMPLE)):
        line = log.line(number)[:200]
        if line and not _OF_THE_END.search(line):
            speakers[_NUMBER.sub("#", line)].add((log.speakers[number], line))
    return frozenset(text for text, seen in speakers.items() if len(seen) > 2 and "#" in text)


def continued(log: Log, line: int, speaker: Speaker, usual: frozenset[str]) -> bool:
    """Whether the process that wrote an exception wrote of its work after it.

    Args:
        log: that holds it.
        line: of its message.
        speaker: who wrote it; nobody known: whether the log ends with lines of work.
        usual: from ``usual_lines``.
    """
    if speaker == NOBODY:  # which process wrote them is not known: what the log ends with
        return any(_is_work(log.line(number)[:400], usual) for number in _last(log) if number > line) or _ended_well(
            log, line, usual
        )
    end = min(len(log.starts), line + _FAR)
    own = [number for number in range(line + 1, end) if log.speakers[number] == speaker]
    return any(_is_work(log.line(number)[:400], usual) for number in own)


def is_last(log: Log, line: int, speaker: Speaker) -> bool:
    """Whether a process wrote nothing behind a line but what belongs to its end."""
    end = min(len(log.starts), line + _FAR)
    own = (number for number in range(line + 1, end) if log.speakers[number] == speaker)
    return all(_OF_THE_END.search(log.line(number)[:400]) for number in own)


def _ended_well(log: Log, line: int, usual: frozenset[str]) -> bool:
    """Whether work comes behind a line, in the end what a program writes that came to its end, and no failure of a process."""
    if not any(_WELL.search(log.line(number)[:400]) for number in _last(log) if number > line):
        return False
    rest = [log.line(number)[:400] for number in range(max(line + 1, len(log.starts) - _FAR), len(log.starts))]
    return not any(map(_FAILED.search, rest)) and sum(_is_work(text, usual) for text in rest) >= _SEVERAL


def _last(log: Log) -> list[int]:
    """The last line that says anything."""
    return next(([number] for number in range(len(log.starts) - 1, -1, -1) if log.line(number).strip()), [])


def _is_work(line: str, usual: frozenset[str]) -> bool:
    if _OF_THE_END.search(line):
        return False
    return _WORK.search(line) is not None or _NUMBER.sub("#", line[:200]) in usual
