"""A document as Markdown, for an issue or a chat: no block and no HTML begins in it, whatever a rank has put into it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ddpnb.render import as_text
from ddpnb.render.document import Block, Drawn, Group, Heading, Inline, Items, Paragraph, Place, Prose, Rule, Title
from ddpnb.texts import printable, relative

_TICKS = "```"
_WIDE = 100  # characters of a line of code


def markdown(*blocks: Block) -> str:
    """The blocks, with an empty line between them."""
    return "\n\n".join("\n".join(lines) for lines in _blocks(blocks))


def _blocks(blocks: Iterable[Block]) -> Iterator[list[str]]:
    for block in blocks:
        if isinstance(block, Title):
            yield [f"### {_plain((block.tag,))} ({block.role})"]
            yield [_plain(block.parts)]
        elif isinstance(block, Paragraph):
            yield [_paragraph(block)]
        elif isinstance(block, Items) and block.items:
            yield [line for item in block.items for line in _item(item)]
        elif isinstance(block, Heading):
            yield [f"#### {_plain((block.words,))}"]
        elif isinstance(block, Prose):
            yield block.markdown.split("\n")
        elif isinstance(block, Rule):
            yield ["---"]
        elif isinstance(block, Group):
            yield from _blocks(block.blocks)
        elif not isinstance(block, (Items, Drawn)):  # as a terminal shows it
            yield [_TICKS, *as_text.text(block, width=_WIDE).replace(_TICKS, "'''").split("\n"), _TICKS]


def _item(item: Block | Iterable[Block]) -> list[str]:
    lines = [line for block in _blocks((item,) if isinstance(item, Block) else item) for line in block]
    return [f"{'  ' if number else ''}- {line}" for number, line in enumerate(lines)]


def _paragraph(block: Paragraph) -> str:
    label = f"{block.label[:1].upper()}{block.label[1:]}: " if block.label else ""
    return _plain((label, *block.parts))


def _plain(parts: Iterable[Inline]) -> str:
    """One line."""
    words = "".join(
        f"`{as_text.words((one,)).replace('`', '')}`" if isinstance(one, Place) else as_text.words((one,))
        for one in parts
    )
    shown = " ".join(relative(printable(words)).split()).replace(_TICKS, "'''")
    return shown.replace("<", "&lt;").replace("@", "@\u200b")
