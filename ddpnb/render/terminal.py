"""Text for a terminal, a file or ``text/plain``, by rich.

rich is imported when something is shown: neither the ranks nor the start of a command wait for it.
"""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TextIO

from ddpnb.render.palette import STYLES
from ddpnb.texts import one_line, printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

Piece = str | tuple[str, str]  # a text, or a text and its style
_UNLIMITED = 100_000
_TRAILING = re.compile(r" +(?=(?:\x1b\[[\d;]*m)+$)", re.MULTILINE)  # blanks before the end of a style


def wants_colour(stream: TextIO) -> bool:
    """Whether to colour: on a capable terminal, unless NO_COLOR is set (no-color.org)."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def columns(width: int | None = None) -> int:
    """The width to wrap at: the given one, or that of the terminal, at most 100."""
    return max(20, width or min(100, shutil.get_terminal_size((100, 24)).columns))


class Paragraph:
    """A wrapped text for ``output``, which may come from a rank. Words, and with them paths, are never broken.

    Args:
        pieces: texts, each alone or with a style: a role of the palette, or a style of rich.
        first: what precedes the first line, as wide as ``rest`` or narrower.
        rest: what precedes the other lines.
        tag: a piece that stands at the end, on one line.
    """

    def __init__(self, *pieces: Piece, first: Piece = "", rest: str = "", tag: Piece | None = None) -> None:
        self._pieces, self._first, self._rest, self._tag = pieces, first, rest, tag

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:

        width = max(10, options.max_width - len(self._rest))
        lines = list(_text(*self._pieces).wrap(console, width))
        for line in lines:
            line.rstrip()
        if self._tag is not None:
            tag = _text(self._tag)
            if lines[-1].cell_len + 2 + tag.cell_len <= width:
                lines[-1].append("  ").append_text(tag)
            else:
                lines.append(tag)
        for number, line in enumerate(lines):
            start = _text(self._rest if number else self._first)
            start.no_wrap = True
            yield start.append_text(line)


class Line:
    """A line for ``output`` that is not wrapped but cut where it is too long, such as one of code. Blanks in it stay."""

    def __init__(self, *pieces: Piece) -> None:
        self._pieces = pieces

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        text = _text(*self._pieces)
        text.no_wrap = True
        text.truncate(options.max_width, overflow="ellipsis")
        yield text


class Columns:
    """A ``table`` for ``output``, each line after ``indent``; ``cut``: it is no wider than the output."""

    def __init__(self, rows: Sequence[Sequence[str]], indent: str, *, right: bool, cut: bool) -> None:
        self._rows, self._indent, self._right, self._cut = rows, indent, right, cut

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        width = options.max_width - len(self._indent) if self._cut else _UNLIMITED
        for line in table(self._rows, justify="right" if self._right else "left", width=width).split("\n"):
            text = _text(f"{self._indent}{line}")
            text.no_wrap = True
            yield text


def _text(*pieces: Piece) -> Text:
    """The pieces as a text that is cut nowhere."""
    from rich.text import Text

    text = Text(overflow="ignore")
    for piece in pieces:
        words, style = (piece, "") if isinstance(piece, str) else piece
        text.append(one_line(words), " ".join(STYLES.get(word, word) for word in style.split()))
    return text


def output(*parts: RenderableType, colour: bool = False, width: int | None = None) -> str:
    """The parts below each other, as text without a newline at its end."""
    from rich.console import Console
    from rich.theme import Theme

    file = io.StringIO()
    # In a notebook too this is a text, and no word of a rank is read as markup.
    console = Console(
        file=file, width=columns(width), height=25, force_terminal=colour, force_jupyter=False,
        color_system="standard" if colour else None, no_color=not colour, legacy_windows=False,
        markup=False, emoji=False, highlight=False, theme=Theme({"markdown.code": "bold"}),
    )  # fmt: skip
    for part in parts:
        console.print(part, crop=False)
    lines = printable(file.getvalue(), styled=True).split("\n")
    return _TRAILING.sub("", "\n".join(line.rstrip() for line in lines)).rstrip("\n")


def table(rows: Sequence[Sequence[str]], *, justify: Literal["left", "right"] = "left", width: int = _UNLIMITED) -> str:
    """Columns of text, which may come from ranks, as wide as they must be; beyond ``width`` the last one is cut."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for number in range(len(rows[0]) if rows else 0):
        last = number == len(rows[0]) - 1
        grid.add_column(justify=justify, no_wrap=not last, overflow="ellipsis")
    for row in rows:
        grid.add_row(*(Text(one_line(cell), no_wrap=True, overflow="ellipsis") for cell in row))
    return output(grid, width=width)
