"""Texts as they are shown: cut where they are too long, and safe for a terminal, a comment and a command line.

What is cleaned here comes from strangers: names of files, recordings, logs, messages of ranks.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable

_LAST_BLANK = re.compile(r"\s\S*\Z")
_END = "..."
# What drives a terminal, or changes how the text around it looks without being seen: controls of seven and of eight bits,
# bidirectional marks, characters without width, fillers, tags, and surrogates, which stand for bytes of odd file names.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
_STYLE = re.compile(r"(\x1b\[[\d;]*m)")
# A cell's file in the folder of the world:
_CELL = re.compile(
    r"(?<![\w./-])/[\w./-]*/ddpnb-(?:\d+-\w+/(?:(In\[\d+\])\.py|(?=cell\d+\.py))|reenact-\w+/(?=reenact\.py))"
)
_STORIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pitfalls", "")
# Before the first character of a path in a text; inside a path the name of the working directory may occur again.
_BEGIN = r"(?:^|(?<=[\s\"'`=:,;|(\[{<>]))"


def printable(text: str, *, styled: bool = False) -> str:
    """Text of a stranger without what is not seen: it must not drive the reader's terminal, nor show another order.

    Args:
        text: any text.
        styled: colours stay: it is a whole output, whose parts have been cleaned before they were coloured.
    """
    if text.isascii() and text.isprintable():
        return text
    if styled:
        return "".join(part if turn % 2 else printable(part) for turn, part in enumerate(_STYLE.split(text)))
    return _UNSEEN.sub("\ufffd", text.replace("\r", ""))


def comment(text: str, longest: int = 160) -> str:
    """A text of a stranger as the rest of a comment in a script, of Python or of a shell: one line of ASCII."""
    line = "".join(c if c.isprintable() else "\ufffd" for c in text[: 2 * longest])
    return shortened(line, longest).encode("ascii", "backslashreplace").decode()


def shell_word(path: str) -> str:
    """The path of a file as a word of a command line that is shown to be typed: no option, and no command."""
    return printable(shlex.quote(f"./{path}" if path.startswith("-") else path)).replace("\n", "\ufffd")


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


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question that names what is spelled almost like a word, or an empty text.

    Example:
        >>> did_you_mean("rnu", ["run", "scan"])
        'Did you mean run?'
    """
    from difflib import SequenceMatcher, get_close_matches

    words = {one.lower(): one for one in known if len(one) > 2}
    swapped = [one for one in words if sorted(one) == sorted(word.lower())]  # few letters: less alike than they look
    alike = swapped or get_close_matches(word.lower(), words, 3, 0.7)
    fits = [SequenceMatcher(None, one, word.lower()).ratio() for one in alike]
    near = [printable(words[one]) for one, fit in zip(alike, fits, strict=True) if fit > fits[0] - 0.1]
    near = [one_line(one) for one in near]
    return f"Did you mean {' or '.join(filter(None, (', '.join(near[:-1]), near[-1])))}?" if near else ""


def relative(text: str) -> str:
    """Shorten paths: below the working directory to relative ones, cells and the scripts of re-enactments to their
    names, pitfalls to the path inside the package.
    """
    if os.sep not in text:  # as most texts: this is called for each cell of each table
        return text
    here = os.getcwd()
    if "/ddpnb-" in text:
        text = _CELL.sub(r"\1", text)
    for folder, shown in ((_STORIES, "pitfalls" + os.sep), (os.path.join(here, ""), "")):
        if folder in text and folder != os.sep:
            text = re.sub(_BEGIN + re.escape(folder), shown, text, flags=re.MULTILINE)
    return text


def one_line(text: str, longest: int = 0) -> str:
    """Text from a rank on one line, printable, with short paths; cut after ``longest`` characters if that is given."""
    shown = relative(printable(text)).replace("\n", " ").replace("\t", " ")
    return shortened(shown, longest) if longest else shown
