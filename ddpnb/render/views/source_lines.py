"""Which ranks ran which line of a file, in a part of the run."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ddpnb.errors import UsageError
from ddpnb.recording import arguments, phrases
from ddpnb.recording.events.runs import LinesNotRecorded
from ddpnb.recording.executed_lines import ExecutedLines
from ddpnb.recording.names import given_name
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.source.code_lines import code_lines
from ddpnb.recording.split import by_value
from ddpnb.render.views.run_parts import WHOLE, RunPart, parts_of

FILES = 100  # that are offered
_NAMED = 3  # files that a note names


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a file.

    ``code``: some rank ran it, or the compiled file has it. ``ranks`` ran it; ``others`` are known not to have run it.
    ``windows``: of a run as a whole, in how many windows each rank ran it. ``words`` say which ranks did, if not all.
    """

    number: int
    text: str = ""
    code: bool = False
    ranks: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    windows: Mapping[int, int] = field(default_factory=dict[int, int])
    words: str = ""

    @property
    def only_some(self) -> bool:
        """Whether some ranks ran it and others did not."""
        return bool(self.ranks and self.others)


@dataclass(frozen=True, slots=True)
class SourceView:
    """A file with the ranks that ran its lines.

    Args:
        file: its path; empty if no rank ran a line of the user's.
        rows: all its lines.
        ranks: the ranks of which lines are recorded.
        unsure: those of them for which lines were dropped: what they did not run is not known.
        window, title: the part of the run, as a number from the end (-1: the last) or ``"run"``, and in words.
        files: that ranks ran lines of, in the order in which they first ran.
        parting: those of which not all ranks ran the same lines in this part.
        windows: the parts of the run that can be chosen, the last one first, each with its words.
        notes: what is not known, in sentences.
    """

    file: str = ""
    rows: tuple[SourceLine, ...] = ()
    ranks: tuple[int, ...] = ()
    unsure: tuple[int, ...] = ()
    window: int | str = WHOLE
    title: str = ""
    files: tuple[str, ...] = ()
    parting: tuple[str, ...] = ()
    windows: tuple[tuple[int | str, str], ...] = ()
    notes: tuple[str, ...] = ()


def source_view(recording: Recording, file: str | None = None, window: int | str = -1) -> SourceView:
    """The lines of a file with the ranks that ran them.

    Args:
        recording: what is known.
        file: a path, or the end of one; None: the file in which ranks part first, else that of their last call.
        window: a part of the run: -1 the last one that the ranks have in common, -2 the one before, ...; ``"run"``: all of it.

    Raises:
        UsageError: no rank ran a line of such a file, or there is no such part of the run.
    """
    recorded = {rank: lines for rank, one in sorted(recording.ranks.items()) if (lines := one.executed) is not None}
    notes = _not_recorded(recording)
    if not any(lines.lines for lines in recorded.values()):
        return SourceView(notes=tuple(notes or ["No rank has run a line of the user's files yet."]))
    parts = parts_of(recording)
    part, said = _chosen(parts, window)
    unsure = tuple(rank for rank, lines in recorded.items() if lines.dropped)
    sure = [rank for rank in recorded if rank not in unsure]
    ran = by_value(
        (rank, at) for rank in recorded for at in dict.fromkeys((site.file, site.line) for site in part.ran[rank])
    )
    apart = {at for at, ranks in ran.items() if any(rank not in ranks for rank in sure)}
    files = tuple(dict.fromkeys(line.site.file for lines in recorded.values() for line in lines.lines))
    chosen = _file(files, file) if file is not None else _default(recording, recorded, part, apart) or files[0]
    text, edits = _text(recording, chosen, recorded.values())
    parting = tuple(one for one in files if one in {at[0] for at in apart})
    return SourceView(
        chosen,
        _rows(chosen, text, recorded, ran, sure, part.window == WHOLE),
        tuple(recorded),
        unsure,
        part.window,
        part.title,
        files,
        parting,
        tuple((one.window, one.title) for one in parts),
        (*said, *notes, *edits, *_elsewhere(parting, chosen)),
    )


def _chosen(parts: tuple[RunPart, ...], window: Any) -> tuple[RunPart, list[str]]:
    found = next((part for part in parts if part.window == window and type(part.window) is type(window)), None)
    if found is not None:
        return found, []
    if window == -1:
        return parts[-1], ["The ranks have no recorded part of the run in common: this is the run as a whole."]
    raise UsageError(
        f"there is no part {arguments.short(window)} of this run.",
        f'Give -1 for the last part, down to {1 - len(parts)}, or "{WHOLE}" for the run as a whole.'
        if len(parts) > 1
        else f'Give "{WHOLE}" for the run as a whole.',
    )


def _file(files: Iterable[str], wanted: str) -> str:
    """The file of this path, or the one whose path ends so."""
    given = os.path.abspath(wanted)
    found = [file for file in files if file in (wanted, given)] or [
        file for file in files if file.endswith(os.sep + wanted.lstrip("./"))
    ]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(map(os.path.relpath, found or list(files)[:_NAMED]))
    what = f"several files end with {wanted!r:.100}" if found else f"no rank ran a line of {wanted!r:.100}"
    raise UsageError(
        f"{what}.", f"{'Give more of the path' if found else 'Lines are recorded of files such as'}: {shown}."
    )


def _default(
    recording: Recording, recorded: Mapping[int, ExecutedLines], part: RunPart, apart: set[tuple[str, int]]
) -> str:
    """The file in which ranks part first, by a line that is new or rare; else that of the last call."""
    found: list[tuple[int, int, str]] = []
    for rank, lines in recorded.items():
        habit = {
            (line.site.file, line.site.line): line.windows
            if part.window == WHOLE
            else int(line.first < part.first[rank])
            for line in lines.lines
        }
        found += [
            (habit.get((site.file, site.line), 0), place, site.file)
            for place, site in enumerate(part.ran[rank])
            if (site.file, site.line) in apart
        ]
    if found:
        return min(found)[2]
    files = {line.site.file for lines in recorded.values() for line in lines.lines}
    calls = (call.site.file for rank in recorded for call in reversed(recording.ranks[rank].calls))
    return next((file for file in calls if file in files), "")


def _text(recording: Recording, file: str, recorded: Iterable[ExecutedLines]) -> tuple[str, list[str]]:
    """The text of a file, and whether it may not be what ran."""
    text = recording.sources.get(file, "")
    name = os.path.basename(file)
    if not text:
        return "", [f"The text of {name} is not in this recording."]
    if file in recording.edited:
        return text, [f"{name} was changed after the run began: the ranks may have run another text."]
    known = code_lines(text)
    ran = {line.site.line for lines in recorded for line in lines.lines if line.site.file == file}
    if known is None:
        return text, [
            f"{name} does not compile with this Python: of lines that no rank ran it is not known which are code."
        ]
    if ran - known:
        return text, [
            f"The ranks ran lines of {name} that have no code in this text: they seem to have run another text."
        ]
    return text, []


def _rows(
    file: str,
    text: str,
    recorded: Mapping[int, ExecutedLines],
    ran: Mapping[tuple[str, int], list[int]],
    sure: list[int],
    whole: bool,
) -> tuple[SourceLine, ...]:
    known = code_lines(text) or frozenset()
    counts: dict[int, dict[int, int]] = defaultdict(dict)
    ever: set[int] = set()
    for rank, lines in recorded.items():
        for line in lines.lines:
            if line.site.file == file:
                ever.add(line.site.line)
                if whole:
                    mine = counts[line.site.line]
                    mine[rank] = max(line.windows, mine.get(rank, 0))
    texts = dict(enumerate(text.split("\n") if text else (), 1))
    if texts and not texts[len(texts)]:
        del texts[len(texts)]
    found: list[SourceLine] = []
    for number in sorted({*texts, *ever}):
        mine = tuple(ran.get((file, number), ()))
        code = number in known or number in ever
        others = tuple(rank for rank in sure if rank not in mine) if code else ()
        words = _words(mine, others, len(recorded))
        found.append(SourceLine(number, texts.get(number, ""), code, mine, others, counts.get(number, {}), words))
    return tuple(found)


def _words(ranks: tuple[int, ...], others: tuple[int, ...], size: int) -> str:
    if not ranks or not others:
        return ""
    alone = len(ranks) <= len(others) and len(ranks) + len(others) == size
    return f"only {phrases.ranks(ranks)}" if alone else f"not {phrases.ranks(others)}"


def _elsewhere(parting: tuple[str, ...], chosen: str) -> list[str]:
    names = [os.path.basename(file) for file in parting if file != chosen]
    if not names:
        return []
    more = f" and {len(names) - _NAMED} more files" if len(names) > _NAMED else ""
    return [f"Ranks also ran different lines of {', '.join(names[:_NAMED])}{more}."]


def _not_recorded(recording: Recording) -> list[str]:
    """Of which ranks lines are not known, and why."""
    missing = by_value((rank, _why(record)) for rank, record in sorted(recording.ranks.items()))
    return [f"Executed lines of {phrases.ranks(ranks)} are {why}." for why, ranks in missing.items() if why]


def _why(record: RankRecord) -> str:
    told = record.events(LinesNotRecorded)
    if record.executed is not None:
        if record.executed.dropped:
            return "not all recorded: there was no room for them; a line without a mark may have run"
        return ""
    if record.reported:
        return "not in the logs and dumps that were read"
    if record.unrecorded:
        return "not recorded: the job was started without ddpnb"
    if told:
        return f"not recorded: {given_name(told[0].why)}"
    return "not recorded: that needs Python 3.12 or later on the ranks, and DDPNB_LINES not to be 0"
