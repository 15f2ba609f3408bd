"""Output of a cell: one block per distinct output, headed by its ranks; as text and as HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from ddpnb.model import phrases
from ddpnb.render.text import printable

MOST = 100_000  # characters that are shown of all blocks together: a notebook must stay usable
_LEAST = 2_000  # that are shown of each, however many there are
_OPEN = 8  # blocks that are unfolded at first
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # colours and movements of a terminal


@dataclass(frozen=True, slots=True)
class Output:
    """What one rank wrote.

    Args:
        text: all of it, or its end.
        what: said of the rank in the heading, as ``raised ValueError``.
        left_out: bytes before ``text``.
        digest: of all that the rank wrote, so that outputs of which only the end is here can be told apart.
        log: the file that holds all of it.
    """

    text: str
    what: str = ""
    left_out: int = 0
    digest: int = 0
    log: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """An output, and the ranks that have it."""

    ranks: tuple[int, ...]
    output: Output

    @property
    def heading(self) -> str:
        """``ranks 0-3``, ``rank 1 raised ValueError``."""
        return printable(f"{phrases.ranks(self.ranks)} {self.output.what}".strip())


def as_seen(text: str) -> str:
    """What a terminal would show: the last version of an overwritten line; no colours, no control characters."""
    lines = _ESCAPES.sub("", text).split("\n")
    return printable("\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines))


def fold(outputs: Mapping[int, Output], *, growing: bool = False) -> list[Block]:
    """Group ranks by output; ranks without output have no block.

    Args:
        outputs: rank -> what it wrote.
        growing: the ranks are still writing: one that is behind another shares its block.
    """
    groups: list[tuple[Output, list[int]]] = []
    ranks = sorted(outputs)
    for rank in sorted(ranks, key=lambda rank: -len(outputs[rank].text)) if growing else ranks:
        mine = outputs[rank]
        if not mine.text:
            continue
        for other, members in groups:
            if _same(mine, other) or (growing and not mine.left_out and other.text.startswith(mine.text)):
                members.append(rank)
                break
        else:
            groups.append((mine, [rank]))
    blocks = [Block(tuple(sorted(members)), output) for output, members in groups]
    return sorted(blocks, key=lambda block: block.ranks)


def _same(one: Output, other: Output) -> bool:
    return (one.what, one.text, one.left_out, one.digest) == (other.what, other.text, other.left_out, other.digest)


def text(blocks: Sequence[Block], notes: Iterable[str] = (), most: int = MOST) -> str:
    """A heading for each block, then its text, ``most`` characters in all; notes at the end."""
    parts: list[str] = []
    for block in blocks:
        left_out, shown = _shown(block.output, most // len(blocks))
        parts.append("\n".join([f"{block.heading}:", *([left_out] if left_out else []), shown]))
    return "\n".join([*parts, *map(printable, notes)])


def html(blocks: Sequence[Block], notes: Iterable[str] = (), most: int = MOST) -> str:
    """The same as a fragment, each block one that can be folded; everything is escaped."""
    parts: list[str] = []
    for number, block in enumerate(blocks):
        left_out, shown = _shown(block.output, most // len(blocks))
        said = f'<div class="m">{escape(left_out)}</div>' if left_out else ""
        attributes = (' class="bad"' if block.output.what else "") + (" open" if number < _OPEN else "")
        parts.append(
            f"<details{attributes}><summary>{escape(block.heading)}</summary>{said}<pre>{escape(shown)}</pre></details>"
        )
    said = "".join(f'<div class="m">{escape(printable(note))}</div>' for note in notes)
    return f'{_STYLE}<div class="ddpnb-cell" role="group" aria-label="output of the ranks">{"".join(parts)}{said}</div>'


def _shown(output: Output, most: int) -> tuple[str, str]:
    """A note if the beginning is left out, and the rest."""
    shown = output.text.rstrip("\n")
    cut = max(0, len(shown) - max(_LEAST, most))
    if not cut and not output.left_out:
        return "", shown
    where = f"; full output: {output.log}" if output.log else ""
    return printable(f"[beginning not shown{where}]"), shown[cut:]


_STYLE = """<style>
.ddpnb-cell{color:var(--vscode-editor-foreground,var(--jp-content-font-color1,inherit));font-size:var(--jp-code-font-size,13px)}
.ddpnb-cell details{border-left:2px solid var(--jp-border-color1,#aab2bb);padding-left:8px;margin:2px 0 6px}
.ddpnb-cell .bad{border-left:4px double var(--jp-error-color1,#b3261e)}
.ddpnb-cell summary{cursor:pointer;font-weight:600;font-family:var(--jp-ui-font-family,system-ui,sans-serif)}
.ddpnb-cell pre{margin:2px 0;white-space:pre-wrap;overflow-wrap:anywhere;background:none}
.ddpnb-cell .m{opacity:.8;font-family:var(--jp-ui-font-family,system-ui,sans-serif)}
</style>"""
