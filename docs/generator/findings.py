"""A page for each finding, from the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpnb import pitfalls
from ddpnb.rules.catalogue import CHAPTERS, UNTESTED, Page, page, pages

_INDEX = f"""\
# Findings

A finding has a code that never changes its meaning. `ddpnb explain CODE` prints its page in a terminal,
`ddpnb.explain("DDP301")` shows it in a notebook, and `ddpnb explain --file LOG` explains the errors in a log. What a finding
may claim is on a page of its own: [](../evidence.md).

Statements about gloo were tested with torch 2.13 on CPU, except for a few messages (of a full disk, or of lost workers)
that are quoted from torch's source. **{UNTESTED}**
"""


def written() -> Iterator[tuple[str, str]]:
    """Path and Markdown of each page."""
    yield "findings/index.md", _index()
    for one in pages().values():
        yield f"findings/{one.code}.md", _page(one)


def anchors() -> dict[tuple[str, str], str]:
    """Anchor of each finding in ``docs/findings.md`` -> its page."""
    return {
        ("docs/findings.md", re.sub(r"[^a-z0-9-]", "", f"{one.code}-{one.name}".lower())): f"findings/{one.code}.md"
        for one in pages().values()
    }


def _index() -> str:
    parts = [_INDEX]
    for number, chapter in CHAPTERS.items():
        rows = [one for one in pages().values() if one.number == number]
        table = "".join(f"| [{one.code}]({one.code}.md) | {one.name} | {_cell(one.summary)} |\n" for one in rows)
        tree = "".join(f"{one.code}\n" for one in rows)
        parts.append(f"## {number} {chapter}\n\n| code | name | what |\n|---|---|---|\n{table}")
        parts.append(f"```{{toctree}}\n:hidden:\n:caption: {number} {chapter}\n\n{tree}```\n")
    return "\n".join(parts)


def _page(one: Page) -> str:
    text = "".join(f"## {heading}\n\n{body}\n\n" for heading, body in one.parts)
    also = "".join(f"- [{code} {page(code).name}]({code}.md)\n" for code in one.see_also)
    shown = "".join(f"- [{pitfall.title}](../pitfalls/{pitfall.name}.md)\n" for pitfall in pitfalls.all_of(one.code))
    run = f"## Pitfalls that show it\n\n{shown}\n" if shown else ""
    return f"# {one.code} {one.name}\n\n{one.what}\n\n{text}{run}## See also\n\n{also}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
