"""A document as HTML for a page that has the style sheet: see ``markup``, which escapes whatever goes in as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ddpnb.recording.calls import Site
from ddpnb.render import markup
from ddpnb.render.code import coloured
from ddpnb.render.document import (
    Block,
    Cell,
    Code,
    Drawn,
    Group,
    Heading,
    Icon,
    Inline,
    Items,
    Line,
    Paragraph,
    Place,
    Prose,
    Row,
    Rule,
    Source,
    Table,
    Title,
)
from ddpnb.texts import printable

# Of Markdown only paragraphs, lists, code and emphasis: the page allows no more in a part of the dashboard.
_NOT = "link image autolink heading lheading hr blockquote html_block html_inline reference".split()  # noqa: SIM905
_ELEMENTS = (("strong>", "b>"), ("em>", "i>"), ("<br />", " "))
_HEAD_WIDEST = 80  # characters of a head of a table
_LONGEST = 400  # characters that are shown on hover
_RANKS, _ROOMY = (
    re.compile(r"\branks? (?=\d)"),
    r'<span class="roomy">\g<0></span>',
)  # a narrow margin shows the numbers
ICONS = {"error": "stop", "warning": "warning", "note": "wait", "ok": "done"}  # of a severity, or an outcome


def html(*blocks: Block) -> str:
    """The blocks below each other."""
    return "".join(_block(block, "p") for block in blocks)


def _block(block: Block, element: str) -> str:
    """``element``: of a paragraph."""
    if isinstance(block, Paragraph):
        if not (block.parts or block.label):
            return ""  # an empty line of text
        given = markup.attributes({"class": block.kind or None})
        return f"<{element}{given}>{_paragraph(block)}</{element}>"
    if isinstance(block, Title):
        icon = _inline(Icon(ICONS[block.role], block.role))
        tag = f'<span class="mono faint">{markup.text(block.tag)}</span>'
        return f'<div class="summary">{icon}{inline(block.parts)} {tag}</div>'
    if isinstance(block, Items):
        given = markup.attributes({"class": block.kind or None})
        return f"<ul{given}>{''.join(map(_item, block.items))}</ul>" if block.items else ""
    if isinstance(block, Group):
        inside = "".join(_block(one, "div") for one in block.blocks)
        role = "article" if block.label else None
        given = markup.attributes({"class": block.kind, "role": role, "aria-label": block.label or None})
        return f"<div{given}>{inside}</div>" if block.kind else inside
    if isinstance(block, Table):
        head = "".join(_cell(cell, _HEAD_WIDEST, scope="col") if cell else "<td></td>" for cell in block.head)
        rows = "".join(_row(row, block.widest) for row in block.rows)
        given = markup.attributes({"class": block.kind or None, "aria-label": block.label})
        body = f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
        return f'<div class="scroll" tabindex="0"><table{given}>{body}</table></div>'
    if isinstance(block, Heading):
        return f"<h2>{markup.text(block.words)}</h2>"
    if isinstance(block, Prose):
        return prose(block.markdown)
    if isinstance(block, Rule):
        return ""
    return _source(block) if isinstance(block, Source) else block.html


def prose(text: str) -> str:
    """Paragraphs, lists, code and emphasis of Markdown; anything else stays text."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "highlight": lambda code, *_: coloured(code)}).disable(_NOT)
    html = parser.render(printable(text))
    for element, ours in _ELEMENTS:
        html = html.replace(element, ours)
    return html


def _paragraph(block: Paragraph) -> str:
    label = f"{markup.text(block.label[:1].upper() + block.label[1:])}: " if block.label else ""
    return label + inline(block.parts)


def _item(item: Block | Iterable[Block]) -> str:
    first, *rest = (item,) if isinstance(item, Block) else item
    shown = _paragraph(first) if isinstance(first, Paragraph) else _block(first, "div")
    return f"<li>{shown}{''.join(_block(one, 'div') for one in rest)}</li>"


def inline(parts: Iterable[Inline], widest: int = 0) -> str:
    """Words with their looks; ``widest``: characters of each text."""
    return "".join(_inline(one, widest) for one in parts)


def _inline(one: Inline, widest: int = 0) -> str:
    if isinstance(one, str):
        return markup.words(one, widest)
    if isinstance(one, Place):
        return markup.place(one.site, one.words)
    if isinstance(one, Drawn):
        return one.html
    if isinstance(one, Icon):
        image = markup.icon(one.name)
        return f'<span class="{one.role}">{image}</span> ' if one.role else f"{image} "
    shown = markup.words(one.words, widest)
    if isinstance(one, Code):
        return f"<code>{shown}</code>"
    element = "b" if one.strong else "span"
    return f"<{element}{markup.attributes({'class': one.role or None})}>{shown}</{element}>"


def _row(row: Row | Sequence[Inline | Cell], widest: int) -> str:
    row = row if isinstance(row, Row) else Row(row)
    first, *rest = row.cells
    given = {"class": "parts" if row.decides else None, "aria-current": "true" if row.current else None}
    cells = f"{_cell(first, widest, scope='row')}{''.join(_cell(cell, widest) for cell in rest)}"
    return f"<tr{markup.attributes({**given})}>{cells}</tr>"


def _cell(cell: Inline | Cell, widest: int, scope: str = "") -> str:
    cell = cell if isinstance(cell, Cell) else Cell((cell,))
    element, head = ("th", True) if scope else ("td", False)
    kind = "differs" if cell.differs else cell.role
    given = {"scope": scope} if scope else {}
    given |= {"class": kind} if kind and not (head and cell.differs) else {}
    given |= {"title": cell.hover[:_LONGEST]} if cell.hover else {}
    given |= {"colspan": str(cell.columns)} if cell.columns > 1 else {}
    given |= {"style": f"padding-left: {10 + 16 * cell.depth}px", "data-depth": cell.depth} if cell.depth else {}
    mark = '<span class="unseen">differs: </span>≠ ' if head and cell.differs else ""
    return f"<{element}{markup.attributes(dict(given))}>{mark}{inline(cell.parts, widest)}</{element}>"


def _source(block: Source) -> str:
    rows = [_line(line, block.file) for line in block.lines]
    return markup.table(block.label, ("ranks", "line", "code"), rows, kind="mono ran fork") if rows else ""


def _line(line: Line | None, file: str) -> str:
    if line is None:
        return '<tr><td></td><th scope="row">…</th><td></td></tr>'
    who = ""
    if line.beside:
        image = markup.icon("why" if line.decides else "go")
        who = f"<span{markup.attributes({'class': line.role or None})}>{_RANKS.sub(_ROOMY, markup.text(line.beside))}&nbsp;{image}</span>"
    number = markup.place(Site(file, line.number, ""), str(line.number))
    kind = markup.attributes({"class": "parts" if line.decides else None})
    code = markup.source_line(line.words)
    return f'<tr{kind}><td class="ranks">{who}</td><th scope="row">{number}</th><td class="code">{code}</td></tr>'
