"""What a report of a Recording begins with: what ran, on what, and the files that it was read from."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable

from ddpnb.recording import phrases
from ddpnb.recording.events.startup import InitProcessGroup
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.names import one_line
from ddpnb.recording.recording import Recording
from ddpnb.render import card
from ddpnb.texts import printable, shortened

_FEW = 3  # files of one format that are named
_PATH = 80  # characters
_LONGEST = 300  # characters of a command, and of other values


def sources(recording: Recording) -> str:
    """One sentence: which files were read as what, and whose output they are; empty for what ddpnb has recorded.

    Example:
        >>> sources(ddpnb.load("torchrun.log"))
        'Read torchrun.log (NCCL watchdog log, failure table of torchrun): found ranks 0-3 of 4.'
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
    who = f"found {phrases.ranks(seen)}{size}" if seen else "which rank wrote it is not known"
    return f"Read {'; '.join(read)}: {who}."


def about(recording: Recording) -> list[tuple[str, str]]:
    """What ran, and on what, as far as it was recorded: names and values, as texts of one line.

    Example:
        >>> about(run.recording)[:2]
        [('command', 'train.py --steps 20'), ('ranks', '4, backend gloo')]
    """
    starts = [found[-1] for one in recording.ranks.values() if (found := one.events(InitProcessGroup))]
    known = {"python": _each(one.versions.get("python", "") for one in starts)}
    known |= {name: _each(one.versions.get(name, "") for one in starts) for name in ("torch", "cuda", "nccl")}
    backend = _each(one.backend for one in starts)
    ranks = f"{max(recording.world_size, len(recording.ranks))}{f', backend {backend}' if backend else ''}"
    versions = ", ".join([f"ddpnb {_version()}", *(f"{name} {value}" for name, value in known.items() if value)])
    found = (
        ("command", recording.host.get("command", "")),
        ("ranks", ranks),
        ("versions", versions),
        ("system", recording.host.get("system", "")),
    )
    return [(name, shortened(one_line(printable(str(value))), _LONGEST)) for name, value in found if value]


def _version() -> str:
    return str(vars(sys.modules["ddpnb"])["__version__"])  # what is above this room is not imported


def _each(values: Iterable[str]) -> str:
    """The value of all ranks; several, where they differ."""
    return " and ".join(sorted({str(value) for value in values if value})[:_FEW])


def markdown(recording: Recording, diagnosis: Diagnosis) -> str:
    """What ran and all that was found, as Markdown to paste into an issue, without secrets and names of people and machines."""
    head = "\n".join(f"- {name}: {value}" for name, value in about(recording))
    return f"{card.masked(head)}\n\n{diagnosis.to_markdown()}"


def _files(paths: list[str]) -> str:
    if len(paths) > _FEW:
        return f"{len(paths)} files such as {_short(paths[0])}"
    return ", ".join(map(_short, paths))


def _short(path: str) -> str:
    return shortened(one_line(path[-4096:])[::-1], _PATH)[::-1]
