"""The answer of an action, which stands beside the button that was pressed; its place is there before, and stays."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ddpnb.render import markup

LONGEST = 2000  # characters of what is said
_OPENED = {
    ".html": "open",
    ".png": "open",
    ".svg": "open",
    ".py": "edit",
    ".sh": "edit",
}  # in a tab of the browser, or as text


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of the actions of one form. ``busy``: those in progress; ``said``: the result of the last one.

    ``file``: that it has written, as an absolute path. ``asks``: what was said holds only for the state in which it was said.
    ``armed``: the hold or fault of which it was said that it waits; None: it was of nothing that ends.
    """

    busy: tuple[str, ...] = ()
    said: str = ""
    bad: bool = False
    file: str = ""
    asks: bool = False
    armed: object = None


NONE = Answer()


def written(said: str, path: str) -> Answer:
    """What was written, with buttons that open and download it."""
    return Answer((), said, file=os.path.abspath(path))


def html(answer: Answer) -> str:
    """One line, or more if the result is longer; empty, it takes the same place."""
    busy = ", ".join(answer.busy)
    working = f'<progress aria-label="working"></progress><span>{markup.text(busy)} …</span>' if busy else ""
    said = ""
    if answer.said:
        kind, role = ("said bad", "alert") if answer.bad else ("said", "status")
        said = f'<div class="{kind}" role="{role}">{markup.words(answer.said, LONGEST)}{_file(answer.file)}</div>'
    return f'<div class="answer" data-key="answer">{working}{said}</div>'


def _file(path: str) -> str:
    """Buttons that open a file that was written, and download it: ``notebook/widgets/static/places.js`` does so."""
    if not path:
        return ""
    how = _OPENED.get(os.path.splitext(path)[1])
    name = os.path.basename(path)
    return "".join(
        f" <button{markup.attributes(_link(words, how, path, name))}>{words}</button>"
        for words, how in ([("open", how)] if how else []) + [("download", "download")]
    )


def _link(words: str, how: str, path: str, name: str) -> dict[str, object]:
    label = f"{words} {name}"
    return {"type": "button", "class": "plain link", "data-written": path, "data-how": how, "aria-label": label}
