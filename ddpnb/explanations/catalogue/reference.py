"""The catalogue as one Markdown file: the reference of the documentation."""

from __future__ import annotations

import re

from ddpnb.explanations.catalogue import CHAPTERS, Page, page, pages

_PREFACE = """\
# The findings of ddpnb

Made by `python -m ddpnb.explanations.catalogue > docs/findings.md` from the pages in `ddpnb/explanations/catalogue/pages`: change those, not
this file. `ddpnb explain CODE` prints one of them in a terminal, `ddpnb.explain("DDP301")` in a notebook, and
`ddpnb explain --file LOG` those that a log is about.

Codes are stable: a code never changes its meaning. What is said of gloo was tried with torch 2.13 on CPU, but for a few
messages (of a full disk, or of lost workers), which are quoted from torch's source. What is said of NCCL comes from
documentation and source: ddpnb has not been run on NCCL or on several GPUs yet.
"""


def reference() -> str:
    """The whole text; ends with a newline."""
    parts = [_PREFACE]
    for number, chapter in CHAPTERS.items():
        rows = [one for one in pages().values() if one.number == number]
        parts.append(f"**{number} {chapter}**\n\n| code | name | what |\n|---|---|---|\n" + "".join(map(_row, rows)))
    for number, chapter in CHAPTERS.items():
        parts.append(f"## {number} {chapter}\n")
        parts += [_page(one) for one in pages().values() if one.number == number]
    return "\n".join(parts)


def _row(one: Page) -> str:
    return f"| {_link(one.code)} | {one.name} | {one.summary.replace('|', chr(92) + '|')} |\n"


def _page(one: Page) -> str:
    also = ", ".join(f"{_link(code)} {page(code).name}" for code in one.see_also)
    text = "".join(f"#### {heading}\n\n{body}\n\n" for heading, body in one.parts)
    return f"### {one.code} {one.name}\n\n{one.what}\n\n{text}#### See also\n\n{also}\n"


def _link(code: str) -> str:
    anchor = re.sub(r"[^a-z0-9-]", "", f"{code} {page(code).name}".lower().replace(" ", "-"))
    return f"[{code}](#{anchor})"
