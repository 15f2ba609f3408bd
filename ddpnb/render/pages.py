"""Pages of the catalogue and explained errors, as plain text for a terminal and as HTML for a notebook.

Pages are trusted Markdown. Error texts come from ranks and are untrusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from ddpnb.recording.findings import Finding
from ddpnb.render import as_text, card, markup
from ddpnb.render.code import coloured
from ddpnb.render.terminal import Paragraph, columns, output
from ddpnb.rules import catalogue
from ddpnb.rules.catalogue import CHAPTERS, UNTESTED, Page

if TYPE_CHECKING:
    from rich.console import RenderableType


def text(
    findings: Sequence[Finding] = (),
    pages: Sequence[Page] = (),
    note: str = "",
    *,
    last: str = "",
    colour: bool = False,
    width: int | None = None,
) -> str:
    """Explained errors, a note, pages and a last line, without a newline at the end."""
    parts: list[Sequence[RenderableType]] = [list(as_text.parts([card.document(one)])) for one in findings]
    parts += [[Paragraph(note)]] if note else []
    for page in pages:
        parts += [[Paragraph("-" * columns(width))]] if parts else []
        parts += _page(page)
    parts += [[Paragraph((UNTESTED, "dim"))]] if pages else []
    parts += [[Paragraph(last)]] if last else []
    return output(*_spaced(parts), colour=colour, width=width)


def listing(*, colour: bool = False, width: int | None = None) -> str:
    """All codes by chapter, one line each."""
    chapters: list[Sequence[RenderableType]] = []
    for number, chapter in CHAPTERS.items():
        chapter_pages = [page for page in catalogue.pages().values() if page.number == number]
        chapters.append([Paragraph((f"{number} {chapter}", "bold")), *_rows(chapter_pages, columns(width))])
    return output(*_spaced(chapters), colour=colour, width=width)


def matches(pages: Iterable[Page], *, colour: bool = False, width: int | None = None) -> str:
    """One line per page."""
    return output(*_rows(pages, columns(width)), colour=colour, width=width)


def _rows(pages: Iterable[Page], width: int) -> Iterator[Paragraph]:
    for page in pages:
        name = f"  {page.code}  {page.name}"
        if width < 80:
            yield Paragraph((name, "bold"))
            yield Paragraph(page.summary, first=" " * 10, rest=" " * 10)
        else:
            yield Paragraph(page.summary, first=(f"{name:<34}", "bold"), rest=" " * 34)


def _spaced(parts: Iterable[Sequence[RenderableType]]) -> Iterator[RenderableType]:
    """The parts with an empty line between them."""
    for number, part in enumerate(parts):
        if number:
            yield Paragraph()
        yield from part


def _page(page: Page) -> Iterator[Sequence[RenderableType]]:
    from ddpnb.render.markdown import PageMarkdown

    yield [Paragraph((f"{page.code} {page.name}", "bold"), tag=(f"(chapter {page.number}: {page.chapter})", "dim"))]
    yield [PageMarkdown(page.what)]
    for heading, body in page.parts:
        yield [Paragraph((heading, "bold")), PageMarkdown(body, indent=2)]
    yield [
        Paragraph(("See also", "bold")),
        *(Paragraph(f"  {code} {catalogue.page(code).name}") for code in page.see_also),
    ]


# -- HTML


def html(findings: Sequence[Finding] = (), pages: Sequence[Page] = (), note: str = "") -> str:
    """Explained errors, a note and pages as one self-contained fragment: no script, no external resources."""
    body = "".join(map(card.finding_html, findings)) + (f"<p>{markup.text(note)}</p>" if note else "")
    body += "".join(map(page_html, pages)) + (f'<p class="faint">{UNTESTED}</p>' if pages else "")
    return markup.standalone(body, "explanation")


def page_html(page: Page) -> str:
    """A page of the catalogue, for a page that has the style sheet."""
    from markdown_it import MarkdownIt

    render = MarkdownIt("commonmark", {"html": False, "highlight": lambda code, *_: coloured(code)}).render
    parts = "".join(f"<h4>{heading}</h4>{render(body)}" for heading, body in page.parts)
    also = "".join(f"<li>{code} {escape(catalogue.page(code).name)}</li>" for code in page.see_also)
    return (
        f'<div class="page" role="article" aria-label="{page.code}"><div class="summary">{page.code} {escape(page.name)} '
        f'<span class="faint">chapter {page.number}: {escape(page.chapter)}</span></div>{render(page.what)}{parts}'
        f"<h4>See also</h4><ul>{also}</ul></div>"
    )
