"""Pages of the catalogue and explained errors, as a document; the lists of codes are for a terminal.

Pages are ours. Error texts come from ranks and are untrusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ddpnb.recording.findings import Finding
from ddpnb.render import as_html, card
from ddpnb.render.document import Block, Group, Heading, Items, Paragraph, Prose, Rule, Span
from ddpnb.render.terminal import Paragraph as Wrapped
from ddpnb.render.terminal import columns, output
from ddpnb.rules import catalogue
from ddpnb.rules.catalogue import CHAPTERS, UNTESTED, Page


def document(
    findings: Sequence[Finding] = (), pages: Sequence[Page] = (), note: str = "", last: str = ""
) -> list[Block]:
    """Explained errors, a note, pages and a last line, with an empty line between them."""
    parts: list[Block] = [card.document(one) for one in findings]
    parts += [Paragraph(note)] if note else []
    for one in pages:
        parts += [Rule(), page(one)] if parts else [page(one)]
    parts += [Paragraph(Span(UNTESTED, "faint"))] if pages else []
    parts += [Paragraph(last)] if last else []
    return list(_spaced(parts))


def page(shown: Page) -> Group:
    """A page of the catalogue."""
    chapter = Span(f"(chapter {shown.number}: {shown.chapter})", "faint")
    head = Paragraph(Span(f"{shown.code} {shown.name}", strong=True), "  ", chapter, kind="summary")
    also = [Paragraph(f"{code} {catalogue.page(code).name}") for code in shown.see_also]
    bodies: list[tuple[str, Block]] = [(heading, Prose(body)) for heading, body in shown.parts]
    bodies.append(("See also", Items(also, marked=False)))
    parts = (head, Prose(shown.what), *(Group((Heading(heading), body)) for heading, body in bodies))
    return Group(list(_spaced(parts)), kind="page", label=shown.code, indented=False)


def _spaced(parts: Iterable[Block]) -> Iterator[Block]:
    """The parts with an empty line between them."""
    for number, part in enumerate(parts):
        if number:
            yield Paragraph()
        yield part


def page_html(shown: Page) -> str:
    """A page of the catalogue, for a page that has the style sheet."""
    return as_html.html(page(shown))


# -- lists of codes


def listing(*, colour: bool = False, width: int | None = None) -> str:
    """All codes by chapter, one line each."""
    rows: list[Wrapped] = []
    for number, chapter in CHAPTERS.items():
        chapter_pages = [one for one in catalogue.pages().values() if one.number == number]
        rows += [Wrapped()] if rows else []
        rows += [Wrapped((f"{number} {chapter}", "bold")), *_rows(chapter_pages, columns(width))]
    return output(*rows, colour=colour, width=width)


def matches(pages: Iterable[Page], *, colour: bool = False, width: int | None = None) -> str:
    """One line per page."""
    return output(*_rows(pages, columns(width)), colour=colour, width=width)


def _rows(pages: Iterable[Page], width: int) -> Iterator[Wrapped]:
    for one in pages:
        name = f"  {one.code}  {one.name}"
        if width < 80:
            yield Wrapped((name, "bold"))
            yield Wrapped(one.summary, first=" " * 10, rest=" " * 10)
        else:
            yield Wrapped(one.summary, first=(f"{name:<34}", "bold"), rest=" " * 34)
