"""Catalogue pages and explained errors, as plain text for a terminal and as HTML for a notebook.

Pages are trusted text in a subset of Markdown: paragraphs, lists with "- ", `inline code` and fenced
code. Error texts come from ranks and are untrusted: they are made printable and escaped.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal, NamedTuple

from ddpnb.explanations.catalogue import CHAPTERS, UNTESTED, Page, page, pages
from ddpnb.model.findings import Finding
from ddpnb.render.palette import ANSI, on_dark_pages, variables
from ddpnb.render.text import printable, relative

_FENCE = re.compile(r"```(\w*)\n(.*?)^```\s*$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`([^`]+)`")
_VERDICT = re.compile(r"\s*# (wrong|right)\b")


class Block(NamedTuple):
    kind: Literal["paragraph", "item", "code"]
    text: str


def blocks(markdown: str) -> list[Block]:
    """The blocks of a text, in order. Lines of a paragraph are joined, lines of code are kept."""
    found: list[Block] = []
    # The split yields text, language and code in turn.
    parts = _FENCE.split(markdown)
    for place in range(0, len(parts), 3):
        for paragraph in re.split(r"\n\s*\n", parts[place]):
            if not paragraph.strip():
                continue
            if paragraph.lstrip().startswith("- "):
                items = re.split(r"^\s*- ", paragraph.strip(), flags=re.MULTILINE)[1:]
                found += [Block("item", " ".join(item.split())) for item in items]
            else:
                found.append(Block("paragraph", " ".join(paragraph.split())))
        if place + 2 < len(parts):
            found.append(Block("code", re.sub(r"\n{3,}", "\n\n", parts[place + 2].rstrip("\n"))))
    return found


# -- text


def columns(width: int | None = None) -> int:
    """The width to wrap at: the given one, or that of the terminal, at most 100."""
    return max(20, width or min(100, shutil.get_terminal_size((100, 24)).columns))


def text(one: Page, *, colour: bool = False, width: int | None = None) -> str:
    """The whole page, without a newline at its end."""
    width = columns(width)
    parts = [_title(one, colour), _body(one.what, colour, width, "")]
    for heading, body in one.parts:
        parts.append(_paint(heading, colour, "bold") + "\n" + _body(body, colour, width, "  "))
    also = "\n".join(f"  {code} {page(code).name}" for code in one.see_also)
    parts.append(_paint("See also", colour, "bold") + "\n" + also)
    parts.append(_paint(_fill(UNTESTED, width, "", ""), colour, "dim"))
    return "\n\n".join(parts)


def listing(*, colour: bool = False, width: int | None = None) -> str:
    """All codes by chapter, one line each."""
    width = columns(width)
    chapters = []
    for number, chapter in CHAPTERS.items():
        rows = [_row(one, colour, width) for one in pages().values() if one.number == number]
        chapters.append("\n".join([_paint(f"{number} {chapter}", colour, "bold"), *rows]))
    return "\n\n".join(chapters)


def matches(found: Iterable[Page], *, colour: bool = False, width: int | None = None) -> str:
    """One line per page."""
    return "\n".join(_row(one, colour, columns(width)) for one in found)


def finding(one: Finding, *, colour: bool = False, width: int | None = None) -> str:
    """An explained error: code, what happened, evidence, fix."""
    width = columns(width)

    def wrapped(words: str, first: str, rest: str) -> str:
        return _fill(relative(printable(words)), width, first, rest)

    lines = [_paint(f"{one.code} {one.name}", colour, "bold", one.severity), wrapped(one.summary, "  ", "  ")]
    lines += [wrapped(words, "  - ", "    ") for words in one.evidence]
    if one.remedy:
        lines.append(wrapped("Fix: " + one.remedy, "  ", "    "))
    return "\n".join(lines)


def paragraph(words: str, width: int) -> str:
    return _fill(printable(words), width, "", "")


def rule(width: int) -> str:
    return "-" * width


def _title(one: Page, colour: bool) -> str:
    title = _paint(f"{one.code} {one.name}", colour, "bold")
    return f"{title}  {_paint(f'(chapter {one.number}: {one.chapter})', colour, 'dim')}"


def _row(one: Page, colour: bool, width: int) -> str:
    code = f"  {_paint(one.code, colour, 'bold')}  "
    if width < 80:
        return f"{code}{one.name}\n{_fill(one.summary, width, ' ' * 10, ' ' * 10)}"
    start = f"{one.name:<24}"
    return code + start + _fill(one.summary, width - 34, "", "").replace("\n", "\n" + " " * 34)


def _body(markdown: str, colour: bool, width: int, indent: str) -> str:
    found, before = "", ""
    for kind, words in blocks(markdown):
        if kind == "code":
            shown = "\n".join(_code(line, colour, indent + "    ") for line in words.splitlines())
        elif kind == "item":
            shown = _inline(_fill(words, width, f"{indent}- ", f"{indent}  "), colour)
        else:
            shown = _inline(_fill(words, width, indent, indent), colour)
        gap = "\n" if before == kind == "item" else "\n\n"
        found += (gap if found else "") + shown
        before = kind
    return found


def _code(line: str, colour: bool, indent: str) -> str:
    said = _VERDICT.match(line)
    role = "" if said is None else "error" if said[1] == "wrong" else "ok"
    return (indent + (_paint(line, colour, role) if role else line)).rstrip()


def _fill(words: str, width: int, first: str, rest: str) -> str:
    return textwrap.fill(
        words, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def _inline(wrapped: str, colour: bool) -> str:
    """Highlights inline code in a terminal and keeps its backquotes."""
    return _INLINE.sub(lambda found: f"`{_paint(found[1], colour, 'bold')}`", wrapped) if colour else wrapped


def _paint(words: str, colour: bool, *roles: str) -> str:
    if not colour:
        return words
    start = f"\x1b[{';'.join(ANSI[role] for role in roles)}m"
    # Colour each line separately: pagers reset colours at a line break.
    return "\n".join(f"{start}{line}\x1b[0m" for line in words.split("\n"))


# -- HTML

_STYLE = """
.ddpnb-page{%s;color:var(--f);font:13px/1.5 var(--jp-ui-font-family,system-ui,sans-serif);max-width:62em}
.ddpnb-page .t{font-size:15px;font-weight:600;margin:12px 0 4px}.ddpnb-page .k{font-weight:400;opacity:.75}
.ddpnb-page .h{font-weight:600;margin:12px 0 2px}.ddpnb-page p{margin:4px 0}.ddpnb-page ul{margin:4px 0 4px 18px;padding:0}
.ddpnb-page code,.ddpnb-page pre{font-family:var(--jp-code-font-family,ui-monospace,monospace);font-size:12px;background:none}
.ddpnb-page pre{border:1px solid var(--l);border-radius:4px;padding:6px 10px;margin:6px 0;overflow-x:auto}
.ddpnb-page .card{border:1px solid var(--l);border-left:4px solid var(--e);border-radius:6px;padding:6px 16px;margin:8px 0}
.ddpnb-page .wrong{color:var(--e)}.ddpnb-page .right{color:var(--o)}
%s{%s}
"""


def html(findings: Sequence[Finding] = (), shown: Sequence[Page] = (), note: str = "") -> str:
    """Explained errors, a note and pages as one self-contained fragment: no script, no external resources."""
    light, dark = (variables(shade, e="error", o="ok", f="fg", l="line") for shade in (0, 1))
    style = _STYLE % (light, on_dark_pages(".ddpnb-page"), dark)
    body = "".join(map(_card, findings)) + (f"<p>{_words(note)}</p>" if note else "") + "".join(map(_page, shown))
    body += f'<p class="k">{UNTESTED}</p>' if shown else ""
    return f'<style>{style}</style><div class="ddpnb-page" role="group" aria-label="explanation">{body}</div>'


def _card(one: Finding) -> str:
    evidence = "".join(f"<li>{_words(said)}</li>" for said in one.evidence)
    fix = f"<p><b>Fix:</b> {_words(one.remedy)}</p>" if one.remedy else ""
    return (
        f'<div class="card" role="article" aria-label="{escape(one.code)}">'
        f'<div class="t">{_words(one.summary)} <span class="k">{escape(one.code)} {escape(one.name)}</span></div>'
        f"{f'<ul>{evidence}</ul>' if evidence else ''}{fix}</div>"
    )


def _words(said: str) -> str:
    """Untrusted text of a rank."""
    return escape(relative(printable(said)))


def _page(one: Page) -> str:
    parts = "".join(f'<div class="h">{heading}</div>{_html_body(body)}' for heading, body in one.parts)
    also = "".join(f"<li>{code} {escape(page(code).name)}</li>" for code in one.see_also)
    return (
        f'<div role="article" aria-label="{one.code}"><div class="t">{one.code} {escape(one.name)} '
        f'<span class="k">chapter {one.number}: {escape(one.chapter)}</span></div>{_html_body(one.what)}{parts}'
        f'<div class="h">See also</div><ul>{also}</ul></div>'
    )


def _html_body(markdown: str) -> str:
    shown = []
    for kind, words in blocks(markdown):
        if kind == "code":
            lines = "\n".join(map(_html_code, words.splitlines()))
            shown.append(f"<pre><code>{lines}</code></pre>")
        elif kind == "item":
            shown.append(f"<li>{_html_inline(words)}</li>")
        else:
            shown.append(f"<p>{_html_inline(words)}</p>")
    return re.sub(r"((?:<li>.*?</li>)+)", r"<ul>\1</ul>", "".join(shown), flags=re.DOTALL)


def _html_code(line: str) -> str:
    said = _VERDICT.match(line)
    return f'<span class="{said[1]}">{escape(line)}</span>' if said else escape(line)


def _html_inline(words: str) -> str:
    return _INLINE.sub(r"<code>\1</code>", escape(words))
