"""A file with a column for each rank that ran its lines, in a terminal and in a notebook."""

from __future__ import annotations

import dataclasses
import itertools

from ddpnb.errors import UsageError
from ddpnb.recording import arguments, phrases
from ddpnb.recording.calls import Site
from ddpnb.recording.recording import Recording
from ddpnb.render import markup
from ddpnb.render.document import Block, Cell, Drawn, Icon, Inline, Items, Paragraph, Place, Row, Span, Table
from ddpnb.render.shown import Shown
from ddpnb.render.views.folded import Fold, folded
from ddpnb.render.views.run_parts import WHOLE
from ddpnb.render.views.source_lines import FILES, SourceLine, SourceView, source_view
from ddpnb.texts import one_line, printable, shortened

_COLUMNS = 8  # ranks with a column of their own; of more, their number is shown
_LINES = 40  # that are shown, about
_ROWS = 200  # of a whole file
_CODE = 300  # characters of a line
_WORDS = 60
RAN, NOT, UNSURE = "●", "·", "?"
_MEANING = {RAN: "ran", NOT: "did not run", UNSURE: "not known"}


class SourceLines(Shown, SourceView):
    """Which ranks ran which line of a file, as ``lines()`` returns it; it shows itself as text and in a notebook.

    ``rows`` are its lines: each has ``number``, ``text``, ``ranks`` (that ran it), ``others`` (that did not) and
    ``only_some``. ``file``, ``title`` (the part of the run) and ``ranks`` say what is compared, ``files`` and ``windows`` what
    else there is, ``notes`` what is not known.
    """

    __slots__ = ()
    _label = "executed lines"

    def _document(self) -> list[Block]:
        return document(self)


def lines(recording: Recording, file: str | None = None, window: int | str = -1) -> SourceLines:
    """Which ranks ran which line of a file, in a part of the run.

    Ranks record it on Python 3.12 and later.

    Args:
        recording: from ``World.snapshot()``, ``Run.recording`` or ``ddpnb.load()``.
        file: a path, or the end of one; None: the file in which the ranks part first, else that of their last call.
        window: -1: since the last collective or optimizer step that all ranks have begun; -2: the part before, and so on;
            ``"run"``: the whole run.

    Returns:
        The lines of the file; shown, those that not all ranks ran, and what is around them.

    Raises:
        UsageError: no rank ran a line of this file, or there is no such part of the run.

    Example:
        >>> ddpnb.lines(ddpnb.load("hang.ddpnb"))
    """
    if file is not None:
        arguments.text("file", file)
    if not isinstance(recording, Recording):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("lines() takes a Recording.", "world.lines() and run.lines() are for live ranks.")
    view = source_view(recording, file, window)
    return SourceLines(**{one.name: getattr(view, one.name) for one in dataclasses.fields(SourceView)})


def document(view: SourceView, *, whole: bool = False) -> list[Block]:
    """The lines that matter as a table with a legend; ``whole``: all lines of the file."""
    notes = [Items([Paragraph(note[:500]) for note in view.notes], kind="faint")] if view.notes else []
    if not view.file:
        return [*notes]
    shown: list[SourceLine | Fold] = list(view.rows[:_ROWS]) if whole else folded(view.rows, _LINES)
    if whole and len(view.rows) > _ROWS:
        shown += folded(view.rows[_ROWS:], _ROWS)
    apart, verdict = _verdict(view)
    icon, role = ("warning", "warning") if apart else ("done", "ok")
    said = (": ", Icon(icon, role), Span(verdict, role)) if verdict else ()
    label = f"executed lines of {one_line(view.file, 100)}"
    head = ("line", *_heads(view), "which ranks", "code")
    table = Table(label, head, [_row(view, row) for row in shown], kind="mono ran", cut=True)
    return [Paragraph(Span(heading(view), strong=True), *said), table, _legend(view, apart), *notes]


def _row(view: SourceView, row: SourceLine | Fold) -> Row:
    if isinstance(row, Fold):
        return Row(("…", *[""] * (len(_heads(view)) + 1), Span(str(row), "faint")))
    code = Drawn(markup.source_line(row.text), printable(row.text[:_CODE].expandtabs(4)).replace("\n", " "))
    apart = (_symbol("▶", "", "only some ranks"), " ") if row.only_some else ()
    return Row(
        (
            Cell((*apart, Place(Site(view.file, row.number, ""), str(row.number)))),
            *(Cell((_symbol(mark, mark, _MEANING.get(mark, "")),), role="mark") for mark in _marks(view, row)),
            shortened(_said(view, row), _WORDS),
            Cell((code,), role="code"),
        ),
        decides=row.only_some,
    )


def _symbol(mark: str, words: str, meaning: str) -> Drawn:
    given = markup.attributes({"role": "img" if meaning else None, "aria-label": meaning or None})
    return Drawn(f"<span{given}>{mark}</span>", words)


def _legend(view: SourceView, apart: int) -> Paragraph:
    marks = [RAN, NOT, *([UNSURE] if view.unsure else [])] if len(view.ranks) <= _COLUMNS else []
    keys: list[tuple[Inline, str]] = [(mark, _MEANING[mark]) for mark in marks]
    keys += [(Drawn("▶", ">"), "only some ranks ran it")] if apart else []
    parts = [(", " if number else "", mark, f" {words}") for number, (mark, words) in enumerate(keys)]
    return Paragraph(*itertools.chain(*parts), kind="faint")


def _marks(view: SourceView, row: SourceLine) -> list[str]:
    """A mark for each rank; of many ranks, how many ran the line; nothing where there is no code."""
    if not row.code:
        return [""] * (len(view.ranks) if len(view.ranks) <= _COLUMNS else 1)
    if len(view.ranks) > _COLUMNS:
        return [f"{len(row.ranks)}/{len(view.ranks)}"]
    return [RAN if rank in row.ranks else UNSURE if rank in view.unsure else NOT for rank in view.ranks]


def _heads(view: SourceView) -> list[str]:
    return [str(rank) for rank in view.ranks] if len(view.ranks) <= _COLUMNS else ["ranks"]


def _said(view: SourceView, row: SourceLine) -> str:
    """What stands beside a line: which ranks ran it, if not all; for the run as a whole also how often."""
    counts = set(row.windows.values())
    if view.window != WHOLE or not counts:
        return row.words
    least, most = min(counts), max(counts)
    often = f"in {least} window{'s' * (most != 1)}" if least == most else f"in {least}-{most} windows"
    return f"{row.words}, {often}" if row.words else often


def _verdict(view: SourceView) -> tuple[int, str]:
    """How many lines only some ranks ran, and that in words; without any of what can be said."""
    apart = sum(row.only_some for row in view.rows)
    if apart:
        return apart, f"only some ranks ran {f'{apart} lines' if apart > 1 else 'one line'}"
    return 0, "" if len(view.ranks) < 2 or view.unsure else f"{phrases.ranks(view.ranks)} ran the same lines"


def heading(view: SourceView) -> str:
    """``train.py, since all_reduce #57 (ranks 0-3)``"""
    return f"{one_line(view.file, 100)}, {one_line(view.title, 100)} ({phrases.ranks(view.ranks)})"


def form(view: SourceView, *, whole: bool) -> str:
    """What can be chosen, with the action ``lines``: files and parts by their place in the lists, and whether all lines are shown."""
    apart = set(view.parting)
    files = [
        (str(number), one_line(file, 100) + (" (ranks part)" if file in apart else ""))
        for number, file in enumerate(view.files)
        if number < FILES or file == view.file
    ]
    windows = [(str(window), title) for window, title in view.windows]
    return markup.form(
        "lines",
        markup.choice("file", "file", files, str(view.files.index(view.file)), change="lines"),
        markup.choice("part of the run", "window", windows, str(view.window), change="lines"),
        markup.button("only lines that matter" if whole else "all lines", "fewer" if whole else "more"),
    )
