"""The blocks of a page, as its Markdown has them."""

from __future__ import annotations

from typing import NamedTuple

from markdown_it import MarkdownIt


class Block(NamedTuple):
    kind: str  # paragraph, item or code
    text: str


def blocks(markdown: str) -> list[Block]:
    """The blocks in order. Lines of a paragraph are joined, lines of code are kept."""
    found, depth = [], 0
    for token in MarkdownIt("commonmark").parse(markdown):
        depth += token.nesting * (token.type.startswith("list_item"))
        if token.type == "inline":
            found.append(Block("item" if depth else "paragraph", " ".join(token.content.split())))
        elif token.type == "fence":
            found.append(Block("code", token.content.rstrip("\n")))
        else:
            assert token.type.partition("_")[0] in ("paragraph", "bullet", "list"), f"not in a page: {token.type}"
    return found
