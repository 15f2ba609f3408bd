"""Texts that are too long for where they are shown."""

from __future__ import annotations

import re

_LAST_BLANK = re.compile(r"\s\S*\Z")
_END = "..."


def shortened(text: str, longest: int) -> str:
    """A text of at most ``longest`` characters: what is longer is cut after a word.

    Args:
        text: any text.
        longest: characters, at least four: those of the ``...`` at the end count too.

    Returns:
        The text, or its beginning. A word that fills half of the space is cut inside.

    Example:
        >>> shortened("mat1 and mat2 shapes cannot be multiplied", 24)
        'mat1 and mat2 shapes...'
    """
    if len(text) <= longest:
        return text
    room = longest - len(_END)
    blank = _LAST_BLANK.search(text[: room + 1])
    end = blank.start() if blank is not None and 2 * blank.start() >= longest else room
    return text[:end].rstrip(" \t\n,;:") + _END
