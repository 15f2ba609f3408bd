"""Text from ranks, made safe to show."""

from __future__ import annotations

import os
import re

from ddpnb.texts import printable, shortened

# A cell's file in the folder of the world:
_CELL = re.compile(
    r"(?<![\w./-])/[\w./-]*/ddpnb-(?:\d+-\w+/(?:(In\[\d+\])\.py|(?=cell\d+\.py))|reenact-\w+/(?=reenact\.py))"
)
_STORIES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "pitfalls", "")
# Before the first character of a path in a text; inside a path the name of the working directory may occur again.
_BEGIN = r"(?:^|(?<=[\s\"'`=:,;|(\[{<>]))"


def relative(text: str) -> str:
    """Shorten paths: below the working directory to relative ones, cells and the scripts of re-enactments to their
    names, pitfalls to the path inside the package.
    """
    here = os.getcwd()
    text = _CELL.sub(r"\1", text)
    for folder, shown in ((_STORIES, "pitfalls" + os.sep), (os.path.join(here, ""), "")):
        if folder in text and folder != os.sep:
            text = re.sub(_BEGIN + re.escape(folder), shown, text, flags=re.MULTILINE)
    return text


def one_line(text: str, longest: int = 0) -> str:
    """Text from a rank on one line, printable, with short paths; cut after ``longest`` characters if that is given."""
    shown = relative(printable(text)).replace("\n", " ").replace("\t", " ")
    return shortened(shown, longest) if longest else shown
