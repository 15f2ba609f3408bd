"""Pieces of HTML that several parts of a page are made of. Whatever goes in as text comes out escaped."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from importlib.resources import files
from urllib.parse import quote

from ddpnb.recording.calls import NO_SITE, Site
from ddpnb.render import palette
from ddpnb.texts import printable, relative

# 12 x 12, filled with the colour of the text: emoji and rare glyphs are missing on many machines
_SHAPES = {
    "stop": "M4 1h4l3 3v4l-3 3H4L1 8V4zM3 5.2v1.6h6V5.2z",
    "warning": "M6 1l5.5 10H.5zM5.3 4.5v3h1.4v-3zM5.3 8.4v1.3h1.4V8.4z",
    "wait": "M2 1h8v1.5L7 6l3 3.5V11H2V9.5L5 6 2 2.5z",
    "done": "M1.5 6.2l1.2-1.2L4.9 7.2 9.6 2.4l1.2 1.2L4.9 9.6z",
    "hold": "M3 2h2v8H3zM7 2h2v8H7z",
    "step": "M2 2l6 4-6 4zM9 2h1.6v8H9z",
    "go": "M3 1.5l7 4.5-7 4.5z",
    "into": "M5.3 0h1.4v5h2.3L6 8.5 3 5h2.3zM6 9.3a1.2 1.2 0 1 0 0 2.4 1.2 1.2 0 0 0 0-2.4z",
    "over": "M1 5h5V2.5L11 6 6 9.5V7H1z",
    "out": "M6 0l3 3.5H6.7v5H5.3v-5H3zM6 9.3a1.2 1.2 0 1 0 0 2.4 1.2 1.2 0 0 0 0-2.4z",
    "release": "M6 2l5 5H1zM1 8.5h10V10H1z",
    "restart": "M6 1.5A4.5 4.5 0 1 0 10.5 6H9A3 3 0 1 1 6 3v2l3.5-2.8L6 0z",
    "compute": "M6 .5l1 1.7 2-.3.3 2 1.7 1-1 1.6 1 1.6-1.7 1-.3 2-2-.3-1 1.7-1-1.7-2 .3-.3-2-1.7-1 1-1.6-1-1.6 1.7-1 .3-2 2 .3zM6 4a2 2 0 1 0 0 4 2 2 0 0 0 0-4z",
    "gone": "M2.2 1L6 4.8 9.8 1 11 2.2 7.2 6 11 9.8 9.8 11 6 7.2 2.2 11 1 9.8 4.8 6 1 2.2z",
    "frozen": "M5.3 0h1.4v4.6l4-2.3.7 1.2L7.4 6l4 2.3-.7 1.2-4-2.3V12H5.3V7.2l-4 2.3-.7-1.2L4.6 6l-4-2.5.7-1.2 4 2.3z",
    "idle": "M6 4.5a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3z",
    "why": "M6 .7a5.3 5.3 0 1 0 0 10.6A5.3 5.3 0 0 0 6 .7zM5.3 8.2h1.4v1.4H5.3zM6 2.4c1.3 0 2.2.8 2.2 2 0 1.5-1.5 1.6-1.5 2.8H5.3c0-2 1.4-2 1.4-2.8 0-.4-.3-.7-.7-.7s-.8.3-.8.8H3.8c0-1.3 1-2.1 2.2-2.1z",
    "folder": "M1 2.5h3.4l1.200 1.500H11v6H1z",
    "fault": "M7 0L2 7h3l-1 5 5-7H6z",
    "heal": "M4.5 1h3v3.5H11v3H7.5V11h-3V7.5H1v-3h3.5z",
    "copy": "M4 1h7v7H8v3H1V4h3zM5.2 2.2V4H8v2.8h1.8V2.2zM2.200 5.200v4.600h4.600V5.200z",
    "save": "M5.300 1h1.400v4.200l1.500-1.500 1 1L6 7.900 2.800 4.700l1-1 1.500 1.500zM1.500 9.300h9V11h-9z",
    "share": "M6 .8l3.200 3.200-1 1-1.500-1.500V7.500H5.300V3.500L3.800 5l-1-1zM1.500 6H3v3.500h6V6h1.500v5h-9z",
    "script": "M4 2.500l1 1L2.500 6 5 8.500l-1 1L.5 6zM8 2.500L11.500 6 8 9.500l-1-1L9.500 6 7 3.500z",
}


_NO_FILE = re.compile(r"^<")  # of a prompt, or of generated code
_CELL = re.compile(r"cell\d+\.py$|In\[\d+\]$")
_LINK = re.compile(r"<(/?)a\b([^>]*)>")  # only ours: texts are escaped
_PATH = 1000  # characters of a working directory that may be left out
_LONGEST = 200  # characters of a file's name
_LINE = 300  # characters of a line of code
_OPTION = re.compile(r"(?<!\S)-{1,2}[A-Za-z][^\s<]{0,40}(?!\S)")  # of a command; a longer one may be broken


@cache
def style() -> str:
    """The style sheet of all outputs: the colours of the palette, and the rules."""
    return palette.css() + files("ddpnb.render").joinpath("style.css").read_text(encoding="utf-8")


def standalone(body: str, label: str) -> str:
    """A fragment with its style sheet: no script, nothing loaded from elsewhere."""
    return f'<style>{style()}</style><div class="ddpnb" role="group" aria-label="{escape(label)}">{body}</div>'


def icon(name: str, *, turning: bool = False) -> str:
    kind = "icon turning" if turning else "icon"
    return f'<svg class="{kind}" viewBox="0 0 12 12" aria-hidden="true"><path fill-rule="evenodd" d="{_SHAPES[name]}"/></svg>'


def text(value: object, longest: int = 0) -> str:
    """A text from anywhere: escaped, without control characters, paths from the working directory."""
    shown = str(value)
    if longest:
        shown = shown[: longest + _PATH]  # a megabyte costs no more than what is shown of it
    shown = relative(printable(shown))
    if longest and len(shown) > longest:
        shown = shown[:longest] + "…"
    return escape(shown)


def words(value: object, longest: int = 0) -> str:
    """``text`` in which no line ends within an option of a command, nor at its dashes."""
    return _OPTION.sub(r'<span class="word">\g<0></span>', text(value, longest))


def verbatim(value: str) -> str:
    """A text from anywhere: escaped, without control characters, and otherwise as it is."""
    return escape(printable(value))


def source_line(words: str) -> str:
    """A line of code: its blanks stay."""
    return f"<code>{escape(printable(words[:_LINE].expandtabs(4)).replace(chr(10), ' '))}</code>"


def table(label: str, head: Iterable[object], rows: Iterable[str], *, kind: str = "mono") -> str:
    """A table that scrolls where it is too wide; ``rows`` are HTML."""
    heads = "".join(f'<th scope="col">{text(cell, 80)}</th>' for cell in head)
    given = attributes({"class": kind or None, "aria-label": label})
    return f'<div class="scroll" tabindex="0"><table{given}><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def attributes(values: dict[str, object]) -> str:
    """`` name="value"`` for each; None is left out, True stands alone."""
    parts = (
        f" {name}" if value is True else f' {name}="{escape(printable(str(value)))}"'
        for name, value in values.items()
        if value is not None and value is not False  # 0 is a value: that of rank 0
    )
    return "".join(parts)


def button(
    label: str,
    action: str,
    *,
    image: str = "",
    enabled: bool = True,
    main: bool = False,
    title: str = "",
    key: str = "",
    **values: object,
) -> str:
    """A real button that sends ``action`` with ``values``; ``key`` presses it, within a panel."""
    given = attributes(
        {
            "type": "button",
            "class": "main" if main else None,
            "data-action": action,
            "title": f"{title} ({key})" if title and key else title or None,
            "disabled": not enabled,
            "aria-keyshortcuts": key or None,
            "data-does": title if key else None,
            **{f"data-{name}": value for name, value in values.items()},
        }
    )
    return f"<button{given}>{icon(image) if image else ''}{text(label)}</button>"


def form(action: str, *parts: str, below: bool = False) -> str:
    """A row of fields and buttons, which sends ``action``; ``below``: with a space above it."""
    given = {"class": "row", "data-action": action, "style": "margin-top:8px" if below else None}
    return f"<form{attributes(dict(given))}>{''.join(parts)}</form>"


def items(rows: Iterable[str], label: str) -> str:
    """A list of HTML; nothing if it is empty."""
    inside = "".join(f"<li>{row}</li>" for row in rows)
    return f"<ul{attributes({'aria-label': label})}>{inside}</ul>" if inside else ""


def offered(label: str, name: str, values: Iterable[str], *, hint: str, size: int) -> str:
    """A labelled field for text that offers these values."""
    offers = "".join(f"<option{attributes({'value': value})}></option>" for value in values)
    given = {"aria-label": label, "name": name, "list": f"ddpnb-{name}s", "placeholder": hint, "size": size}
    return (
        f'<label>{text(label)}<input{attributes(dict(given))}></label><datalist id="ddpnb-{name}s">{offers}</datalist>'
    )


def picture(drawn: bytes, words: str) -> str:
    """A PNG, that is part of the page."""
    source = f"data:image/png;base64,{b64encode(drawn).decode()}"
    return f'<img alt="{text(words)}" style="max-width:100%" src="{source}">'


def folded(title: str, inside: str, *, opened: bool = False, key: str = "") -> str:
    """What unfolds; ``key``: it stays as it is when the page changes."""
    given = attributes({"data-key": key or None, "open": opened})
    return f"<details{given}><summary>{text(title, _LONGEST)}</summary>{inside}</details>"


def field(label: str, name: str, value: object = "", *, size: int = 10, hint: str = "") -> str:
    """A labelled field of a form, for text."""
    given = attributes({"aria-label": label, "name": name, "value": value, "size": size, "placeholder": hint or None})
    return f"<label>{text(label)}<input{given}></label>"


def number(label: str, name: str, value: object = "", *, least: int | None = None, hint: str = "") -> str:
    """A labelled field of a form, for a number; a whole one if there is a least."""
    given = {
        "aria-label": label,
        "type": "number",
        "name": name,
        "value": value,
        "min": least,
        "step": "any" if least is None else None,
    }
    return f"<label>{text(label)}<input{attributes({**given, 'placeholder': hint or None})}></label>"


def choice(label: str, name: str, options: Iterable[tuple[str, str]], chosen: str = "", *, change: str = "") -> str:
    """A labelled list to choose from: ``(value, what is shown)``; ``change`` is sent at once when it changes."""
    shown = "".join(
        f"<option{attributes({'value': value, 'selected': value == chosen})}>{text(words)}</option>"
        for value, words in options
    )
    return f"<label>{text(label)}<select{attributes({'aria-label': label, 'name': name, 'data-change': change or None})}>{shown}</select></label>"


def grouped(
    label: str, name: str, groups: Mapping[str, Iterable[tuple[str, str, str]]], chosen: str = "", *, change: str = ""
) -> str:
    """A labelled list in groups, with a field that narrows it to what was typed (``widgets/static/filter.js``).

    Args:
        label, name, chosen, change: as for ``choice``.
        groups: by heading, of each its value, what is shown, and more words by which it is found.
    """
    shown = ""
    for heading, options in groups.items():
        rows = "".join(
            f"<option{attributes({'value': value, 'data-words': f'{value} {words} {heading}', 'selected': value == chosen})}>{text(said)}</option>"
            for value, said, words in options
        )
        shown += f'<optgroup label="{escape(printable(heading))}">{rows}</optgroup>'
    given = attributes({"aria-label": label, "name": name, "data-change": change or None})
    hint = {"aria-label": f"search: {label}", "placeholder": "words", "size": 12, "data-narrow": name}
    return (
        f"<label>{text(label)}<select{given}>{shown}</select></label>"
        f'<label><span>search <span class="faint" role="status" data-narrowed></span></span><input{attributes(dict(hint))}></label>'
    )


def rank_boxes(size: int, *, legend: str = "on ranks", chosen: Iterable[int] = ()) -> str:
    """Boxes to tick, one per rank; for many ranks a field that takes ``0-3,8``."""
    ticked = set(chosen)
    if size > 16:
        ranks = ",".join(map(str, sorted(ticked)))
        return field(legend, "ranks", ranks, hint="all, or 0-3,8", size=12)
    boxes = "".join(
        f'<label class="beside"><input{attributes({"type": "checkbox", "name": "ranks", "value": rank, "checked": rank in ticked})}>{rank}</label>'
        for rank in range(size)
    )
    return f"<fieldset><legend>{text(legend)}</legend>{boxes}</fieldset>"


def place(site: Site, words: str = "", *, stop: bool = True) -> str:
    """Where in the code, as a link with the whole path on hover.

    A widget opens it in the same JupyterLab, or shows the text (``notebook/widgets/static/places.js``). In a page without
    scripts, a file below the working directory is a relative link and anything else is text.

    Args:
        site: the place.
        words: what is shown; by default the file, shortened, and the line.
        stop: the tabulator stops at it.
    """
    if site == NO_SITE:
        return ""
    file = site.file[: _LONGEST + _PATH]
    shown = relative(file)
    label = f"<code>{text(words) if words else f'{text(short(shown), _LONGEST)}:{site.line}'}</code>"
    if _NO_FILE.search(shown) or len(shown) > _LONGEST:
        return label
    there = os.path.abspath(shown) == os.path.abspath(site.file)  # not a name that only stands for a path
    linked = there and not os.path.isabs(shown) and not _CELL.search(shown)
    # JupyterLab counts lines of a fragment from 0.
    href = f"{quote(shown, errors='replace')}#line={max(0, site.line - 1)}" if linked else None
    given = {
        "href": href,
        "target": "_blank" if href else None,
        "rel": "noopener" if href else None,
        "data-file": os.path.abspath(file),
        "data-line": site.line,
        "title": f"{shown if _CELL.search(shown) else file}:{site.line}",
        "tabindex": None if stop else "-1",
    }
    return f"<a{attributes(given)}>{label}</a>"


def short(path: str) -> str:
    """A path in as little room as tells it from others: of an absolute one, the file and its folder.

    Example:
        >>> short("/home/me/jobs/first/train.py")
        '…/first/train.py'
    """
    parts = path.split("/")
    return path if len(parts) <= 3 else f"…/{'/'.join(parts[-2:])}"


def without_links(html: str) -> str:
    """The same for pages on which the links of a notebook lead nowhere; what a link says on hover stays."""
    return _LINK.sub(_unlinked, html)


def _unlinked(link: re.Match[str]) -> str:
    title = re.search(r' title="[^"]*"', link[2])
    return f"<{link[1]}span{title[0] if title else ''}>"


def age(seconds: float) -> str:
    """How long ago something began: the page counts on."""
    return f'<time data-age="{max(0.0, seconds):.2f}">{span(seconds)}</time>'


def duration(seconds: float) -> str:
    """How long something took: ``3.2 ms``, ``0.9 s``, ``45 s``."""
    return f"{max(0.0, seconds) * 1e3:.3g} ms" if seconds < 0.1 else span(seconds)


def span(seconds: float) -> str:
    """``0.9 s``, ``45 s``, ``3 min``: as the page counts."""
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{int(seconds)} s"
    return f"{int(seconds // 60)} min" if seconds < 7200 else f"{int(seconds // 3600)} h"


def amount(count: float) -> str:
    """Bytes as a person reads them."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit in ("B", "KB") or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return ""
