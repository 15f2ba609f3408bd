"""What is known of a log beside its lines: which rank its name says, the numbers of its lines, and whether it is a part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ddpnb.reports.excerpts import excerpt
from ddpnb.reports.facts import Origin
from ddpnb.reports.logs import Log, rank_of_path

IN_THE_END = 1_000_000_000  # as the number of the first line of the end of a large file: its own is not known
_MASTER = re.compile(r"(?:^|[^A-Za-z])(?:master|chief|launcher|head)[ _.=-]?0(?:\.[^/\\]{0,20})?$", re.IGNORECASE)
_WORKER = re.compile(
    r"(?:^|[^A-Za-z])(?:worker|node|pod|host|replica)[ _.=-]?\d{1,6}(?:[.][^/\\]{0,20}|[/\\]std[^/\\]{0,20})?$",
    re.IGNORECASE,
)
_BEGINS = re.compile(r"^Traceback \(most recent call last\)", re.MULTILINE)
_CHAINED = re.compile(r"the direct cause of the following|During handling of the above exception")


def with_origin(log: Log, raw: str, paths: Sequence[str] = (), first: int = 1) -> Log:
    """A log with what its file says beside its lines.

    Args:
        log: from ``logs.read``.
        raw: the text that it was read from.
        paths: those of all files of the job.
        first: the number of the first line in the file.
    """
    named, (rank, inferred) = rank_of_path(log.path), owner(log.path, paths, log.text)
    speakers = log.speakers
    if named != rank and {speaker.rank for speaker in set(speakers)} <= {None, named}:
        speakers = [replace(speaker, rank=rank) for speaker in speakers]
    origin = Origin(_numbers(raw, len(log.starts), first), raw.endswith("\n"), excerpt(raw), inferred, (raw, first))
    return replace(log, speakers=speakers, origin=origin)


def owner(path: str, paths: Sequence[str], text: str) -> tuple[int | None, bool]:
    """The rank that the name of a file says, and whether that is inferred: a worker may be a node with several ranks.

    Args:
        path: its name.
        paths: those of all files. PyTorchJob's master is rank 0, and its worker N is rank N + 1.
        text: two tracebacks that do not follow from each other are those of two ranks.

    Example:
        >>> owner("job-worker-0.log", ["job-master-0.log", "job-worker-0.log"], "")
        (1, True)
    """
    if path in paths and _MASTER.search(path[-1000:]):
        return (None if _has_several(text) else 0), True
    rank = rank_of_path(path)
    if rank is None or not _WORKER.search(path[-1000:]):
        return rank, False
    masters = any(_MASTER.search(one[-1000:]) for one in paths)
    return (None if _has_several(text) else rank + masters), True


def _has_several(text: str) -> bool:
    return len(_BEGINS.findall(text)) - len(_CHAINED.findall(text)) > 1


def _numbers(raw: str, lines: int, first: int) -> Sequence[int]:
    """The number of each of the last lines in the file: a progress bar may make several of one."""
    in_file = raw.count("\n") + 1
    if "\r" in raw and lines != in_file:
        numbers = [
            number
            for number, line in enumerate(raw.split("\n"), first)
            for _ in range(1 + line.count("\r") - line.endswith("\r"))
        ]
        return numbers[-lines:] if lines <= len(numbers) else ()
    last = first + in_file - 1
    return () if first == 1 and lines >= in_file else range(max(last - lines + 1, 1), last + 1)
