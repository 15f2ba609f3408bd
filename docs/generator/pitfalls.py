"""A page for each pitfall: what is wrong, what to look at, the fix as a difference."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from ddpnb import pitfalls
from ddpnb.rules.catalogue import page


def written() -> Iterator[tuple[str, str]]:
    """Path and Markdown of each page."""
    yield "pitfalls/index.md", _index()
    for one in pitfalls.all_of():
        yield f"pitfalls/{one.name}.md", _page(one)


def _index() -> str:
    rows = "".join(
        f"| [{code}](../findings/{code}.md) {page(code).name} | "
        + "<br>".join(f"[{one.title}]({one.name}.md)" for one in group)
        + " |\n"
        for code, group in groupby(pitfalls.all_of(), key=lambda one: one.finding)
    )
    tree = "".join(f"{one.name}\n" for one in pitfalls.all_of())
    return (
        f"# Pitfalls\n\n{len(pitfalls.names())} training scripts with one bug each. `ddpnb pitfalls run NAME` runs one, "
        "`ddpnb pitfalls run NAME --fixed` the script without the bug. How to teach with them: [](../teaching.md).\n\n"
        f"| finding | pitfalls |\n|---|---|\n{rows}\n```{{toctree}}\n:hidden:\n\n{tree}```\n"
    )


def _page(one: pitfalls.Pitfall) -> str:
    source = one.broken.read_text(encoding="utf-8")
    return (
        f"# {one.title}\n\n{one.why}\n\n```console\n$ ddpnb pitfalls run {one.name}\n$ ddpnb pitfalls run {one.name} --fixed\n"
        f"```\n\nThe broken script gives [{one.finding} {page(one.finding).name}](../findings/{one.finding}.md).\n\n"
        f"## What to look at\n\n{one.look}\n\n## How to fix\n\n{one.fix}\n\n```diff\n{one.difference}\n```\n\n"
        f"## The broken script\n\n```python\n{source}```\n"
    )
