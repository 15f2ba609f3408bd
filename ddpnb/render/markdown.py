"""Markdown in a terminal: rich's, with plain lists and code. Imported when a page is shown, since it takes a while."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, ListItem, Markdown
from rich.segment import Segment
from rich.text import Text

_STYLES = {"# wrong": "red", "# right": "green"}


class PageMarkdown(Markdown):
    """The text of a page. Inline code keeps its backquotes: without colours nothing else marks it."""

    def __init__(self, text: str, indent: int = 0) -> None:
        super().__init__(text)
        self._indent = indent
        for token in self.parsed:
            for child in token.children or ():
                if child.type == "code_inline":
                    child.content = f"`{child.content}`"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        inner = options.update(width=options.max_width - self._indent)
        lines = list(Segment.split_lines(cast("Iterable[Segment]", super().__rich_console__(console, inner))))
        for line in lines if lines[0] else lines[1:]:  # a list begins with an empty line
            yield from (Segment(" " * self._indent), *line, Segment.line())


class _Item(ListItem):
    def render_bullet(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self.elements, options.update(width=options.max_width - 2))
        for number, line in enumerate(lines):
            yield from (Segment("  " if number else "- "), *line, Segment("\n"))


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in str(self.text).rstrip().split("\n"):
            style = _STYLES.get(line.strip()[:7], "")
            yield Text.assemble("    ", (line, style), no_wrap=True, overflow="ignore")


PageMarkdown.elements = {**Markdown.elements, "list_item_open": _Item, "fence": _Code}
