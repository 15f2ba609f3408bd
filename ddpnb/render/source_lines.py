"""A file with a column for each rank that ran its lines, in a terminal and in a notebook."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ddpnb.errors import UsageError
from ddpnb.recording import arguments, phrases
from ddpnb.recording.calls import Site
from ddpnb.recording.recording import Recording
from ddpnb.render import markup, terminal
from ddpnb.render.terminal import Paragraph, output
from ddpnb.render.views.folded import Fold, folded
from ddpnb.render.views.run_parts import WHOLE
from ddpnb.render.views.source_lines import FILES, SourceLine, SourceView, source_view
from ddpnb.texts import one_line, printable, shortened

_COLUMNS = 8  # ranks with a column of their own; of more, their number is shown
_LINES = 40  # of a file in a terminal
_ROWS = 200  # in a notebook
_CODE = 300  # characters of a line
_LEAST = 24  # columns for code in a terminal
_WORDS = 60
RAN, NOT, UNSURE = "●", "·", "?"
_MEANING = {RAN: "ran", NOT: "did not run", UNSURE: "not known"}


class SourceLines(SourceView):
    """Which ranks ran which line of a file, as ``lines()`` returns it; it shows itself as text and in a notebook.

    ``rows`` are its lines: each has ``number``, ``text``, ``ranks`` (that ran it), ``others`` (that did not) and
    ``only_some``. ``file``, ``title`` (the part of the run) and ``ranks`` say what is compared, ``files`` and ``windows`` what
    else there is, ``notes`` what is not known.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return markup.standalone(html(self), "executed lines")


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


def _cells(view: SourceView, row: SourceLine) -> list[str]:
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


# -- plain text


def text(view: SourceView, *, width: int | None = None) -> str:
    """The lines that matter, with a legend; ends without a newline."""
    parts: list[str] = []
    if view.file:
        parts.append(_table(view, folded(view.rows, _LINES), terminal.columns(width)))
        marks = [RAN, NOT, *([UNSURE] if view.unsure else [])] if len(view.ranks) <= _COLUMNS else []
        keys = [f"{mark} {_MEANING[mark]}" for mark in marks]
        apart, told = _verdict(view)
        keys += ["> only some ranks ran it"] if apart else [told] if told else []
        parts.append("  " + "   ".join(keys))
    parts += [output(Paragraph(note, first="- ", rest="  "), width=width) for note in view.notes]
    return "\n".join(parts)


def _table(view: SourceView, shown: list[SourceLine | Fold], width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    rows = [one for one in shown if isinstance(one, SourceLine)]
    digits = max((len(str(row.number)) for row in rows), default=1)
    heads = _heads(view)
    cell = max(map(len, (*heads, *(mark for row in rows for mark in _cells(view, row)))))
    marks = " ".join(head.rjust(cell) for head in heads)
    said = max((len(shortened(_said(view, row), _WORDS)) for row in rows), default=0)
    room = max(_LEAST, width - len(marks) - said - digits - 10)
    code = max((min(room, cell_len(_code(row))) for row in rows), default=0)
    head, label, left = heading(view), "ran: ", 4 + digits + code + 2
    found: list[str] = []
    if cell_len(head) + 2 + len(label) > width - len(marks) - said - 3:  # too long to stand beside the ranks
        found, head = [head], ""
    left = max(left, cell_len(head) + 2 + len(label))
    found.append(set_cell_size(head, left - len(label)) + label + marks)
    for one in shown:
        if isinstance(one, Fold):
            found.append(f"  {'':{digits}}  {one}")
            continue
        mark = ">" if one.only_some else " "
        line = _code(one)
        line = set_cell_size(line, left - digits - 6 - 1) + "…" if cell_len(line) > left - digits - 6 else line
        start = set_cell_size(f"{mark} {one.number:>{digits}}  {line}", left)
        found.append(
            f"{start}{' '.join(c.rjust(cell) for c in _cells(view, one))}   {shortened(_said(view, one), _WORDS)}"
        )
    return "\n".join(line.rstrip() for line in found)


def _code(row: SourceLine) -> str:
    return printable(row.text[:_CODE].expandtabs(4)).replace("\n", " ")


def heading(view: SourceView) -> str:
    """``train.py, since all_reduce #57 (ranks 0-3)``"""
    return f"{one_line(view.file, 100)}, {one_line(view.title, 100)} ({phrases.ranks(view.ranks)})"


# -- HTML


def html(view: SourceView, *, choices: bool = False, whole: bool = False) -> str:
    """The same as a table.

    Args:
        view: what is shown.
        choices: with lists of files and parts of the run to choose from, which send ``lines``.
        whole: all lines of the file, instead of those that matter.
    """
    notes = "".join(f'<li class="faint">{markup.text(note, 500)}</li>' for note in view.notes)
    below = f'<ul aria-label="notes">{notes}</ul>' if notes else ""
    if not view.file:
        return below
    form = _form(view, whole=whole) if choices else ""
    apart, told = _verdict(view)
    image, role = ("warning", "warning") if apart else ("done", "ok")
    verdict = f' <span class="{role}">{markup.icon(image)} {told}</span>' if told else ""
    said = f"<p><b>{markup.text(heading(view))}</b>{verdict}</p>"
    shown: list[SourceLine | Fold] = list(view.rows[:_ROWS]) if whole else folded(view.rows, _ROWS)
    if whole and len(view.rows) > _ROWS:
        shown += folded(view.rows[_ROWS:], _ROWS)
    heads = ("line", *_heads(view), "which ranks", "code")
    rows = list(_html_rows(view, shown, len(heads)))
    table = markup.table(f"executed lines of {one_line(view.file, 100)}", heads, rows, kind="mono ran")
    marks = (RAN, NOT, *((UNSURE,) if view.unsure else ()))
    keys = [f"{mark} {_MEANING[mark]}" for mark in marks] if len(view.ranks) <= _COLUMNS else []
    keys += ["▶ only some ranks ran it"] if apart else []
    legend = " &nbsp; ".join(keys)
    return f'{form}{said}{table}<p class="faint">{legend}</p>{below}'


def _html_rows(view: SourceView, shown: list[SourceLine | Fold], columns: int) -> Iterator[str]:
    for one in shown:
        if isinstance(one, Fold):
            yield f'<tr><td colspan="{columns}" class="faint">{markup.text(str(one))}</td></tr>'
            continue
        kind, apart = ("parts", f"{_symbol('▶', 'only some ranks')} ") if one.only_some else (None, "")
        cells = "".join(f'<td class="mark">{_symbol(mark, _MEANING.get(mark))}</td>' for mark in _cells(view, one))
        yield (
            f"<tr{markup.attributes({'class': kind})}>"
            f'<th scope="row">{apart}{markup.place(Site(view.file, one.number, ""), str(one.number))}</th>'
            f'{cells}<td>{markup.text(_said(view, one))}</td><td class="code">{markup.source_line(one.text)}</td></tr>'
        )


def _symbol(mark: str, meaning: str | None) -> str:
    return f'<span role="img" aria-label="{meaning}">{mark}</span>' if meaning else mark


def _form(view: SourceView, *, whole: bool) -> str:
    """What can be chosen: files and parts by their place in the lists, and whether all lines are shown."""
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
