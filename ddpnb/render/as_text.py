"""A document as text for a terminal, a file or ``text/plain``, by rich: see ``terminal``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ddpnb.render import document, terminal
from ddpnb.render.document import (
    Block,
    Cell,
    Code,
    Group,
    Heading,
    Icon,
    Inline,
    Items,
    Place,
    Prose,
    Row,
    Rule,
    Source,
    Span,
    Table,
    Title,
)
from ddpnb.render.terminal import Columns, Line, Paragraph, Piece
from ddpnb.texts import printable, shortened

if TYPE_CHECKING:
    from rich.console import RenderableType

_STEP = "  "  # of what belongs to something


def text(*blocks: Block, colour: bool = False, width: int | None = None) -> str:
    """The whole document; ends without a newline."""
    return terminal.output(*parts(blocks), colour=colour, width=width)


def parts(blocks: Iterable[Block], indent: str = "", *, hangs: bool = False) -> Iterator[RenderableType]:
    """For ``terminal.output``.

    Args:
        blocks: of a document.
        indent: what precedes each line.
        hangs: the lines of a paragraph after its first one are indented once more.
    """
    for block in blocks:
        if isinstance(block, Title):
            yield Paragraph((words(block.parts), "bold"), tag=(f"[{block.tag}]", block.role))
        elif isinstance(block, document.Paragraph):
            rest = indent + _STEP if hangs else indent
            yield Paragraph(*_pieces(block), first=indent, rest=rest)
        elif isinstance(block, Items):
            for item in block.items:
                yield from _item(item, indent, marked=block.marked)
        elif isinstance(block, Group) and not block.indented:
            yield from parts(block.blocks, indent)
        elif isinstance(block, Group):
            yield from parts(block.blocks[:1], indent, hangs=True)
            yield from parts(block.blocks[1:], indent + _STEP, hangs=True)
        elif isinstance(block, Source):
            yield from _source(block, indent)
        elif isinstance(block, Table):
            yield Columns(_rows(block), indent, right=block.right, cut=block.cut)
        elif isinstance(block, Heading):
            yield Paragraph((block.words, "bold"), first=indent, rest=indent)
        elif isinstance(block, Prose):
            yield _prose(block, indent)
        elif isinstance(block, Rule):
            yield _rule()


def _prose(block: Prose, indent: str) -> RenderableType:
    from ddpnb.render.markdown import PageMarkdown  # takes a while

    return PageMarkdown(printable(block.markdown), len(indent))


def _rule() -> RenderableType:
    from rich.rule import Rule

    return Rule(characters="-", style="")


def _item(item: Block | Iterable[Block], indent: str, *, marked: bool) -> Iterator[RenderableType]:
    first, *rest = (item,) if isinstance(item, Block) else item
    if marked and isinstance(first, document.Paragraph):
        yield Paragraph(*_pieces(first), first=f"{indent}- ", rest=indent + _STEP)
    else:
        yield from parts((first,), indent, hangs=True)
    yield from parts(rest, indent + _STEP, hangs=True)


def _pieces(block: document.Paragraph) -> list[Piece]:
    """What is in one style is one text: paths are shortened in it as a whole."""
    found: list[tuple[str, str]] = [(f"{block.label}: ", "")] if block.label else []
    for one in block.parts:
        style = f"{'bold ' * one.strong}{one.role}".strip() if isinstance(one, Span) else ""
        if found and found[-1][1] == style:
            found[-1] = found[-1][0] + _words(one), style
        else:
            found.append((_words(one), style))
    return list(found)


def words(inlines: Iterable[Inline]) -> str:
    """Words without their looks."""
    return "".join(map(_words, inlines))


def _words(one: Inline) -> str:
    if isinstance(one, str):
        return one
    if isinstance(one, Place):
        return one.words or str(one.site)
    return f"`{one.words}`" if isinstance(one, Code) else "" if isinstance(one, Icon) else one.words


def _rows(block: Table) -> list[list[str]]:
    """The head and the rows, after a column of marks if any stands out."""
    own = [row if isinstance(row, Row) else Row(row) for row in block.rows]
    rows = [
        [_cell(cell, 0) for cell in block.head],
        *([_cell(cell, block.widest) for cell in row.cells] for row in own),
    ]
    kept = [number for number in range(len(rows[0])) if any(row[number] for row in rows if number < len(row))]
    rows = [[row[number] for number in kept if number < len(row)] for row in rows]
    marks = ["", *map(_mark, own)]
    return [[mark, *row] for mark, row in zip(marks, rows, strict=True)] if any(marks) else rows


def _mark(row: Row) -> str:
    first = row.cells[0] if row.cells else ""
    return ">" if row.decides else "≠" if isinstance(first, Cell) and first.differs else ""


def _cell(cell: Inline | Cell, widest: int) -> str:
    shown = words(cell.parts) if isinstance(cell, Cell) else _words(cell)
    return shortened(shown, widest) if widest else shown


def _source(block: Source, indent: str) -> Iterator[RenderableType]:
    lines = [line for line in block.lines if line is not None]
    wide = max((len(line.beside) for line in lines), default=0)
    digits = max((len(str(line.number)) for line in lines), default=0)
    for line in block.lines:
        if line is None:
            yield Line(f"{indent}{'':{wide}}    {'...':>{digits}}")
            continue
        mark = " >" if line.decides else "->" if line.beside else "  "
        bold = "bold" if line.decides else ""
        start = f"{indent}{line.beside:>{wide}} {mark} {line.number:>{digits}} "
        yield Line((start, bold or line.role), "| ", (line.words, bold))
