"""The answer of an action, which stands beside the button that was pressed; its place is there before, and stays."""

from __future__ import annotations

from dataclasses import dataclass

from ddpnb.render import markup

_LONGEST = 2000


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of the actions of one form. ``busy``: those in progress; ``said``: the result of the last one."""

    busy: tuple[str, ...] = ()
    said: str = ""
    bad: bool = False


def html(answer: Answer) -> str:
    """One line, or more if the result is longer; empty, it takes the same place."""
    busy = ", ".join(answer.busy)
    working = f'<progress aria-label="working"></progress><span>{markup.text(busy)} …</span>' if busy else ""
    said = ""
    if answer.said:
        kind, role = ("said bad", "alert") if answer.bad else ("said", "status")
        said = f'<div class="{kind}" role="{role}">{markup.text(answer.said, _LONGEST)}</div>'
    return f'<div class="answer" data-key="answer">{working}{said}</div>'
