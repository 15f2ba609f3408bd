"""What is shown, as a document: a few kinds of nodes, whichever form they are written in.

``as_text``, ``as_html`` and ``as_markdown`` write it. Texts in it may come from ranks: each writer makes them harmless for its form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddpnb.recording.calls import Site


@dataclass(frozen=True, slots=True)
class Span:
    """Words that look different: in the colour of a ``role``, or ``strong``."""

    words: str
    role: str = ""
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Code:
    """A name or an expression, between backticks where there is no other type."""

    words: str


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file: a link where there are links; ``words``: shown instead of the file and the line."""

    site: Site
    words: str = ""


@dataclass(frozen=True, slots=True)
class Icon:
    """A picture, only where there are some: a word beside it says the same."""

    name: str
    role: str = ""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a page draws itself, as HTML of ``markup``, which escapes what is put into it; ``words``: instead of it in text."""

    html: str
    words: str = ""


Inline = str | Span | Code | Place | Icon | Drawn


@dataclass(frozen=True, init=False)
class Paragraph:
    """Words that are wrapped. ``kind``: its class in HTML; ``label``: what stands before them, and a colon."""

    parts: tuple[Inline, ...]
    kind: str
    label: str

    def __init__(self, *parts: Inline, kind: str = "", label: str = "") -> None:
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "label", label)


@dataclass(frozen=True, slots=True)
class Title:
    """What a card begins with. ``role``: its severity; ``tag``: its code and name."""

    parts: Sequence[Inline]
    tag: str
    role: str


@dataclass(frozen=True, slots=True)
class Heading:
    """What stands above a part of a page."""

    words: str


@dataclass(frozen=True, slots=True)
class Prose:
    """A text that is written as Markdown: paragraphs, lists, code and emphasis; what else it has stays text."""

    markdown: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across, between parts that could each stand alone; where there are no frames."""


@dataclass(frozen=True, slots=True)
class Items:
    """A list. An item is a paragraph, or several blocks; ``marked``: with a dash also in text; ``kind``: its class in HTML."""

    items: Sequence[Block | Sequence[Block]]
    marked: bool = True
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table. ``differs``: from the same cell of other ranks, or in its row; ``hover``: its value in full.

    ``role``: its colour; ``depth``: how far it is indented; ``columns``: that it spans.
    """

    parts: Sequence[Inline]
    differs: bool = False
    role: str = ""
    hover: str = ""
    depth: int = 0
    columns: int = 1


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table that stands out: it ``decides``, as a line of a source does, or is the ``current`` one."""

    cells: Sequence[Inline | Cell]
    decides: bool = False
    current: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below a head; the first cell of a row names it. ``widest``: characters of a cell.

    In text, columns in which nothing is written are left out, and the last one is cut where the line ends if it is ``cut``.
    """

    label: str
    head: Sequence[Inline | Cell]
    rows: Sequence[Row | Sequence[Inline | Cell]]
    kind: str = "mono"
    widest: int = 0
    right: bool = False  # numbers, in text
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a source. ``beside``: in its margin; ``decides``: it is what the others are shown for."""

    number: int
    words: str
    beside: str = ""
    decides: bool = False
    role: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """Lines of a file with ranks in their margin; None stands for lines that are left out."""

    file: str
    lines: Sequence[Line | None]
    label: str


@dataclass(frozen=True, slots=True)
class Group:
    """Blocks that belong together: the first one stands out, the others are ``indented`` in text. ``kind``: its class in HTML."""

    blocks: Sequence[Block]
    kind: str = ""
    label: str = ""
    indented: bool = True


Block = Paragraph | Title | Heading | Prose | Rule | Items | Table | Source | Group | Drawn
