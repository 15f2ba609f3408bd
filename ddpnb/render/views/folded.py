"""The lines of a file around those that matter; the others are summed up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddpnb.render.views.source_lines import SourceLine

_CONTEXT = 2  # lines before and after
_SHORTEST = 3  # lines: fewer are shown as they are


@dataclass(frozen=True, slots=True)
class Fold:
    """Lines that are not shown. ``words`` say who ran them."""

    first: int
    last: int
    words: str

    def __str__(self) -> str:
        lines = f"line {self.first}" if self.first == self.last else f"lines {self.first}-{self.last}"
        return f"{lines}: {self.words}"


def folded(rows: Sequence[SourceLine], most: int) -> list[SourceLine | Fold]:
    """The lines that not all ranks ran, or else those that any ran, with a few around them.

    Args:
        rows: of a file.
        most: how many lines are shown, about: of more the first ones.
    """
    wanted = [place for place, row in enumerate(rows) if row.only_some]
    wanted = wanted or [place for place, row in enumerate(rows) if row.ranks]
    kept: set[int] = set()
    for place in wanted:
        if len(kept) >= most:
            break
        kept.update(range(max(0, place - _CONTEXT), min(len(rows), place + _CONTEXT + 1)))
    found: list[SourceLine | Fold] = []
    hidden: list[SourceLine] = []
    for place, row in enumerate(rows):
        if place in kept:
            found += _fold(hidden)
            hidden = []
            found.append(row)
        else:
            hidden.append(row)
    return found + _fold(hidden)


def _fold(rows: list[SourceLine]) -> list[SourceLine | Fold]:
    """One entry for many lines; a few stay as they are."""
    apart = sum(row.only_some for row in rows)
    if len(rows) < _SHORTEST and not apart:
        return list(rows)
    code = [row for row in rows if row.code]
    ran = [row for row in code if row.ranks]
    if apart:
        words = f"{apart} more lines that only some ranks ran"
    elif not ran:
        words = "run by no rank" if code else "no code"
    elif len(ran) == len(code):
        words = "run by all ranks"
    else:
        words = f"{len(ran)} of {len(code)} lines of code run by all ranks"
    return [Fold(rows[0].number, rows[-1].number, words)]
