"""A sentence as the title of a card: read at a glance, however many ranks, places and causes it names."""

from __future__ import annotations

import re
from collections.abc import Callable

from ddpnb.rules.rule import MOST_WORDS

_FUNCTION = re.compile(r"(:\d{1,9}) in [\w.<>]{1,100}(?=[\s,;:.])")
_PLACE = re.compile(r" at [^\s:]{1,1000}:\d{1,9}(?=[\s,;:.])")
_RANKS = re.compile(
    r"\branks (\d{1,9}(?:-\d{1,9})?(?:, \d{1,9}(?:-\d{1,9})?)+(?: and \d{1,9}(?:-\d{1,9})?)?(?: more)?)", re.IGNORECASE
)
_ENDS = ("; ", ": ", ". ", ", ")  # of clauses
_LEAST = 6  # words of what remains without a clause
_LONGEST = 2000  # characters that are looked at


def title(sentence: str) -> str:
    """The sentence with at most 20 words: without functions and places, with the number of ranks, without its last clauses.

    Example:
        >>> title("Ranks 1, 3, 5 and 7 never call the all_reduce that ranks 0, 2, 4 and 6 are blocked in: they finished.")
        'Ranks 1, 3, 5 and 7 never call the all_reduce that 4 ranks are blocked in: they finished.'
    """
    ways: tuple[Callable[[str], str], ...] = (
        lambda text: _FUNCTION.sub(r"\1", text),
        _counted,
        _counted,
        _counted,
        lambda text: _PLACE.sub("", text),
        _without_clause,
        _without_clause,
        _without_clause,
    )
    if len(sentence.split()) <= MOST_WORDS:
        return sentence
    sentence = sentence[:_LONGEST]
    for shorter in ways:
        if len(sentence.split()) <= MOST_WORDS:
            return sentence
        sentence = shorter(sentence)
    words = sentence.split()
    return sentence if len(words) <= MOST_WORDS else f"{' '.join(words[: MOST_WORDS - 1])} ..."


def _counted(text: str) -> str:
    """With the number of ranks instead of the last list of them."""
    found = next(reversed([*_RANKS.finditer(text)]), None)
    if found is None:
        return text
    return f"{text[: found.start()]}{_count(found[1])} ranks{text[found.end() :]}"


def _count(listed: str) -> int:
    """``0-3, 5 and 90 more``: 95."""
    more = re.search(r" and (\d+) more\Z", listed)
    spans = re.findall(r"(\d+)(?:-(\d+))?", listed[: more.start()] if more else listed)
    return sum(int(last or first) - int(first) + 1 for first, last in spans) + (int(more[1]) if more else 0)


def _without_clause(text: str) -> str:
    end = max(text.rstrip(".").rfind(one) for one in _ENDS)
    return f"{text[:end]}." if end > 0 and len(text[:end].split()) >= _LEAST else text
