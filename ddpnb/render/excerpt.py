"""Lines of a source with what ranks did there in their margin, and what is around them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ddpnb.recording import phrases
from ddpnb.render.document import Line

_MOST = 24  # lines
_RANKS, _MARGIN = 18, 32  # characters: of more ranks their number is shown, of more words the first ones


@dataclass(frozen=True, slots=True)
class Mark:
    """Ranks at a line, with what they did there in a word; without ranks only the word. ``role``: its colour."""

    ranks: tuple[int, ...]
    word: str = ""
    role: str = ""


def excerpt(
    marks: Mapping[int, Sequence[Mark]], texts: Mapping[int, str], around: Mapping[int, int], decides: int = 0
) -> list[Line | None]:
    """The lines with marks; None stands for lines that are left out between them.

    Args:
        marks: by line.
        texts: of the lines that are known.
        around: how many lines before and after a line are shown too.
        decides: the line that the others are shown for.
    """
    texts = {number: text.expandtabs(4) for number, text in texts.items()}
    numbers = _chosen(marks, texts, around, decides)
    indent = min((len(text) - len(text.lstrip()) for n in numbers if (text := texts.get(n, "")).strip()), default=0)
    found: list[Line | None] = []
    for before, number in zip([numbers[0] - 1, *numbers] if numbers else [], numbers, strict=False):
        found += [None] if number > before + 1 else []
        own = marks.get(number, ())
        roles = {mark.role for mark in own}
        colour = roles.pop() if len(roles) == 1 and number != decides else ""
        found.append(Line(number, texts.get(number, "")[indent:], margin(own), number == decides, colour))
    return found


def margin(marks: Sequence[Mark]) -> str:
    """``rank 1 waits``, ``rank 3 called, ranks 0-2 wait``, ``40 ranks``."""
    words: list[str] = []
    for mark in marks:
        words.append(" ".join(filter(None, (_who(mark.ranks), mark.word))))
        if len(", ".join(words)) > _MARGIN and len(words) > 1:
            return f"{', '.join(words[:-1])}, ..."
    return ", ".join(words)


def _who(ranks: Sequence[int]) -> str:
    listed = phrases.listed(ranks) if ranks else ""
    return listed if len(listed) <= _RANKS else f"{len(set(ranks))} ranks"


def _chosen(marks: Iterable[int], texts: Mapping[int, str], around: Mapping[int, int], decides: int) -> list[int]:
    """The numbers of the lines that are shown, without empty ones at the ends of what stands together."""
    marked = set(marks)
    numbers = sorted(
        marked
        | {near for line, count in around.items() for near in range(line - count, line + count + 1) if near in texts}
    )
    if len(numbers) > _MOST:
        centre = decides or min(marked)
        numbers = sorted(sorted(numbers, key=lambda number: (number not in marked, abs(number - centre)))[:_MOST])
    # A single line between others is shown rather than left out.
    numbers = sorted({*numbers, *(n + 1 for n, after in pairwise(numbers) if after == n + 2 and n + 1 in texts)})
    empty = {number for number in numbers if number not in marked and not texts.get(number, "").strip()}
    kept = set(numbers)
    for ordered in (numbers, numbers[::-1]):
        step = 1 if ordered is numbers else -1
        for number in ordered:
            if number in empty and number - step not in kept:
                kept.discard(number)
    return sorted(kept)
