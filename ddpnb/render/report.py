"""The files that a Recording was read from, in words."""

from __future__ import annotations

from collections import defaultdict

from ddpnb.recording import phrases
from ddpnb.recording.names import one_line
from ddpnb.recording.recording import Recording
from ddpnb.texts import shortened

_FEW = 3  # files of one format that are named
_PATH = 80  # characters


def sources(recording: Recording) -> str:
    """One sentence: which files were read as what, and which ranks occur in them; empty for what ddpnb has recorded.

    Example:
        >>> sources(ddpnb.load("torchrun.log"))
        'Read torchrun.log (NCCL watchdog log, failure table of torchrun): ranks 0-3 of 4 occur.'
    """
    report = recording.report
    if report is None:
        return ""
    formats: dict[str, list[str]] = defaultdict(list)
    for source in report.sources:
        if source.format not in formats[source.path]:
            formats[source.path].append(source.format)
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path, named in formats.items():
        alike[tuple(named)].append(path)
    read = [f"{_files(paths)} ({', '.join(named)})" for named, paths in alike.items()]
    seen = [rank for rank, record in recording.ranks.items() if record.mentioned or rank in report.present]
    size = f" of {recording.world_size}" if report.world_size_known else ""
    who = f"{phrases.ranks(seen)}{size} {phrases.verb(seen, 'occurs', 'occur')}" if seen else "no rank is named"
    return f"Read {'; '.join(read)}: {who}."


def _files(paths: list[str]) -> str:
    if len(paths) > _FEW:
        return f"{len(paths)} files such as {_short(paths[0])}"
    return ", ".join(map(_short, paths))


def _short(path: str) -> str:
    return shortened(one_line(path[-4096:])[::-1], _PATH)[::-1]
