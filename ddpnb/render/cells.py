"""Output of a cell: one block per distinct output, headed by its ranks; as text and as HTML.

What a cell displayed (figures, tables) stands between its texts. A notebook shows it with its own renderers, as bundles of MIME
types; text and HTML of ddpnb's own have the plain text of it instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from ddpnb.recording import phrases
from ddpnb.render import markup
from ddpnb.texts import printable

MOST = 1_000_000  # characters that are shown of all blocks together: a notebook must stay usable
MOST_PLAIN = 100_000  # of them as plain text
_LEAST = 2_000  # that are shown of each, however many there are
_OPEN = 8  # blocks that are unfolded at first
_TIMES = re.compile(r"\[\d+:\d\d(?::\d\d)?<[^\]\n]{1,60}\]")  # of tqdm: elapsed, left and the rate
_PLAIN, _HTML = "text/plain", "text/html"


@dataclass(frozen=True, slots=True)
class Display:
    """What code displayed: content by MIME type, as Jupyter has it, and metadata."""

    data: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __eq__(self, other: object) -> bool:
        """Whether both look the same. Plain text is not compared where there is more: it may contain an address."""
        return isinstance(other, Display) and (self._looks, self.metadata) == (other._looks, other.metadata)

    __hash__ = None  # type: ignore[assignment]

    @property
    def _looks(self) -> dict[str, Any]:
        return {kind: content for kind, content in self.data.items() if kind != _PLAIN} or dict(self.data)

    @property
    def text(self) -> str:
        """Its plain text."""
        return printable(str(self.data.get(_PLAIN, "")) or f"<{', '.join(self.data) or 'nothing'}>")


@dataclass(frozen=True, slots=True)
class Output:
    """What one rank wrote.

    Args:
        text: all of it, or its end.
        what: said of the rank in the heading, as ``raised ValueError``.
        left_out: bytes before ``text``.
        digest: of all that the rank wrote, so that outputs of which only the end is here can be told apart.
        log: the file that holds all of it.
        displays: what was displayed, and after how many characters of ``text``.
    """

    text: str
    what: str = ""
    left_out: int = 0
    digest: int = 0
    log: str = ""
    displays: tuple[tuple[int, Display], ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """An output, and the ranks that have it.

    ``timed``: their progress bars show other times.
    """

    ranks: tuple[int, ...]
    output: Output
    timed: bool = False

    @property
    def heading(self) -> str:
        """``ranks 0-3``, ``rank 1 raised ValueError``."""
        return printable(f"{_heading(self.ranks, timed=self.timed)} {self.output.what}".strip())


def _heading(ranks: Sequence[int], *, timed: bool) -> str:
    return phrases.ranks(ranks) + (f" (times of rank {ranks[0]})" if timed else "")


def fold(outputs: Mapping[int, Output], *, growing: bool = False) -> list[Block]:
    """Group ranks by output; ranks without output have no block.

    Args:
        outputs: rank -> what it wrote.
        growing: the ranks are still writing: one that is behind another shares its block.
    """
    groups: list[tuple[Output, list[int]]] = []
    ranks = sorted(outputs)
    for rank in sorted(ranks, key=lambda rank: -_length(outputs[rank])) if growing else ranks:
        mine = outputs[rank]
        if not mine.text and not mine.displays:
            continue
        for other, members in groups:
            if _same(mine, other) or (growing and _is_behind(mine, other)):
                members.append(rank)
                break
        else:
            groups.append((mine, [rank]))
    blocks: list[Block] = []
    for output, members in groups:
        members.sort()
        mine = outputs[members[0]] if not growing else output
        timed = not growing and any(outputs[rank].text != mine.text for rank in members)
        blocks.append(Block(tuple(members), mine, timed))
    return sorted(blocks, key=lambda block: block.ranks)


def _length(output: Output) -> int:
    return len(output.text) + len(output.displays)


def _is_behind(mine: Output, other: Output) -> bool:
    return (
        not mine.left_out and other.text.startswith(mine.text) and other.displays[: len(mine.displays)] == mine.displays
    )


def _same(one: Output, other: Output) -> bool:
    if (one.what, one.left_out, one.digest) != (other.what, other.left_out, other.digest):
        return False
    if (one.text, one.displays) == (other.text, other.displays):
        return True
    return not one.displays and not other.displays and untimed(one.text) == untimed(other.text)


def untimed(text: str) -> str:
    """A text without the times and rates of progress bars, which differ between ranks that did the same."""
    return _TIMES.sub("", text) if len(text) < MOST_PLAIN else text


def is_cut(blocks: Sequence[Block], most: int = MOST) -> bool:
    """Whether not all of the output is shown."""
    return any(_shown(block.output, most // len(blocks))[0] for block in blocks)


def text(blocks: Sequence[Block], notes: Iterable[str] = (), most: int = MOST_PLAIN) -> str:
    """A heading for each block, then its text, ``most`` characters in all; notes at the end."""
    parts: list[str] = []
    for block in blocks:
        left_out, pieces = _shown(block.output, most // len(blocks))
        parts.append("\n".join([f"{block.heading}:", *([left_out] if left_out else []), _joined(pieces)]))
    return "\n".join([*parts, *map(printable, notes)])


def html(blocks: Sequence[Block], notes: Iterable[str] = (), most: int = MOST) -> str:
    """The same as a fragment, each block one that can be folded; everything is escaped."""
    parts = [_folded(block, number, most // len(blocks)) for number, block in enumerate(blocks)]
    return _fragment([*parts, *_notes(notes)])


def bundles(
    blocks: Sequence[Block],
    notes: Iterable[str] = (),
    most: int = MOST,
    after: Iterable[tuple[str, str]] = (),
    *,
    growing: bool = False,
) -> list[Display]:
    """The same for a notebook: texts and displays in their order, each for one output of the cell.

    ``after``: what comes at the end, as text and HTML. ``growing``: the ranks are still writing, some are behind.
    """
    found: list[Display] = []
    plain: list[str] = []
    rich: list[str] = []

    def end(after: Iterable[tuple[str, str]] = ()) -> None:
        own = [*([("\n".join(plain), _fragment(rich))] if rich else []), *after]
        if own:
            found.append(Display({_PLAIN: "\n\n".join(p for p, _ in own), _HTML: "".join(h for _, h in own)}))
        plain.clear()
        rich.clear()

    rich_ones = [block for block in blocks if block.output.displays]
    aligned = growing or len({len(block.output.displays) for block in rich_ones}) == 1
    for number, block in enumerate(blocks):
        if not block.output.displays:
            plain.append(text([block], most=min(most, MOST_PLAIN) // len(blocks)))
            rich.append(_folded(block, number, most // len(blocks)))
        elif block is rich_ones[0] or not aligned:
            together = rich_ones if aligned else [block]
            heading = ""
            for ranks, piece in _rows(together, most // len(blocks)):
                if heading != (heading := phrases.ranks(ranks)):
                    plain.append(f"{heading}:")
                    rich.append(f'<div class="head">{markup.verbatim(heading)}</div>')
                if isinstance(piece, Display):
                    end()
                    found.append(piece)
                else:
                    plain.append(piece)
                    rich.append(f'<div class="block">{_box(piece)}</div>')
            end()
    plain += map(printable, notes)
    rich += _notes(notes)
    end(after)
    return found


Groups = tuple[tuple[int, ...], ...]


def _rows(blocks: Sequence[Block], most: int) -> Iterator[tuple[tuple[int, ...], str | Display]]:
    """The texts and displays of these outputs, each with the ranks that have it.

    What is equal on all of them is there once, between what differs; that goes from rank to rank.
    """
    columns: list[tuple[tuple[int, ...], list[str | Display]]] = []
    for block in blocks:
        left_out, pieces = _shown(block.output, most)
        columns.append((block.ranks, [left_out, *pieces]))
    parts: list[tuple[Groups, list[list[str | Display]]]] = []
    for row in zip_longest(*(pieces for _, pieces in columns)):  # a rank that is behind has fewer
        groups: list[tuple[str | Display, list[int]]] = []
        for (ranks, _), piece in zip(columns, row, strict=True):
            if piece is None:
                continue
            shown = piece if isinstance(piece, Display) else piece.strip("\n")
            for other, members in groups:
                if other == shown:
                    members += ranks
                    break
            else:
                groups.append((shown, list(ranks)))
        if not any(groups[0][:1]) and len(groups) == 1:
            continue
        split: Groups = tuple(tuple(sorted(members)) for _, members in groups)
        if not parts or parts[-1][0] != split:
            parts.append((split, []))
        parts[-1][1].append([piece for piece, _ in groups])
    for split, rows in parts:
        for number, ranks in enumerate(split):
            for row in rows:
                if row[number]:
                    yield ranks, row[number]


def _folded(block: Block, number: int, most: int) -> str:
    left_out, pieces = _shown(block.output, most)
    attributes = (' class="bad"' if block.output.what else "") + (" open" if number < _OPEN else "")
    return f"<details{attributes}><summary>{markup.verbatim(block.heading)}</summary>{_note(left_out)}{_box(_joined(pieces))}</details>"


def _box(shown: str) -> str:
    """A text that scrolls when it is long. Its end is in sight: a column in reverse order begins there."""
    return f'<div class="box"><pre>{markup.verbatim(shown)}</pre></div>'


def _joined(pieces: Iterable[str | Display]) -> str:
    return "".join(f"{one.text}\n" if isinstance(one, Display) else one for one in pieces).rstrip("\n")


def _note(said: str) -> str:
    return f'<div class="m">{markup.verbatim(said)}</div>' if said else ""


def _notes(notes: Iterable[str]) -> list[str]:
    return [_note(note) for note in notes]


def _fragment(parts: Iterable[str]) -> str:
    return f'{_STYLE}<div class="ddpnb-cell" role="group" aria-label="output of the ranks">{"".join(parts)}</div>'


def _shown(output: Output, most: int) -> tuple[str, list[str | Display]]:
    """A note if the beginning is left out, and the rest: texts and displays."""
    cut = max(0, len(output.text.rstrip("\n")) - max(_LEAST, most))
    pieces = list(_pieces(output, cut))
    if not cut and not output.left_out:
        return "", pieces
    where = f"; full output: {output.log}" if output.log else ""
    return printable(f"[beginning not shown{where}]"), pieces


def _pieces(output: Output, cut: int) -> Iterator[str | Display]:
    """A text before each display, which may be empty, and one at the end."""
    position = cut
    for at, display in output.displays:
        yield output.text[position:at]
        position = max(position, at)
        yield display
    yield output.text[position:]


_STYLE = """<style>
.ddpnb-cell{color:var(--vscode-editor-foreground,var(--jp-content-font-color1,inherit));font-size:var(--jp-code-font-size,13px)}
.ddpnb-cell details,.ddpnb-cell .block{border-left:2px solid var(--jp-border-color1,#aab2bb);padding-left:8px;margin:2px 0 6px}
.ddpnb-cell .bad{border-left:4px double var(--jp-error-color1,#b3261e)}
.ddpnb-cell summary,.ddpnb-cell .head{font-weight:600;font-family:var(--jp-ui-font-family,system-ui,sans-serif)}
.ddpnb-cell summary{cursor:pointer}
.ddpnb-cell .box{display:flex;flex-direction:column-reverse;max-height:26em;overflow:auto}
.ddpnb-cell pre{flex:none;margin:2px 0;white-space:pre-wrap;overflow-wrap:anywhere;background:none}
.ddpnb-cell .m{opacity:.8;font-family:var(--jp-ui-font-family,system-ui,sans-serif)}
</style>"""
