"""The actions on the cards of findings: explain it, and show the pitfall."""

from __future__ import annotations

from collections.abc import Mapping

from ddpnb import pitfalls
from ddpnb.notebook.widgets.parts import Card
from ddpnb.notebook.widgets.view import Action
from ddpnb.recording.findings import Diagnosis, Finding
from ddpnb.render import card_actions as render
from ddpnb.render import lesson

_SHOWN = ("explain", "lesson")


class FindingActions:
    """Adds actions to the cards of findings, with an answer below the card that asked.

    What concerns the whole run is in the head: ``run_actions.py``. ``ddpnb.explain()`` explains as well.

    Args:
        card: with the findings.
        act: takes all other actions of the page.
    """

    def __init__(self, card: Card, act: Action | None = None) -> None:
        self._card, self._act = card, act
        self._of: Diagnosis | None = None  # whose answer is shown
        self._opened: dict[int, str] = {}  # finding -> the action whose answer is shown
        self._answers: dict[int, str] = {}
        card.on_action, card.below = self.take, self._below
        self._card.redraw()

    def take(self, action: str, values: Mapping[str, str]) -> None:
        """Take an action of the page."""
        number = values.get("number", "")
        findings = self._card.diagnosis.findings if self._card.diagnosis is not None else ()
        if action == "close story":  # of a lesson that stands here
            for one in [one for one, opened in self._opened.items() if opened == "lesson"]:
                self._close(one)
        elif not number.isdecimal() or int(number) >= len(findings):
            if self._act is not None:
                self._act(action, dict(values))
            return
        elif action == "close finding" or (action in _SHOWN and self._opened.get(int(number)) == action):
            self._close(int(number))
        elif action in _SHOWN:
            self._open(action, int(number), findings[int(number)])
        elif self._act is not None:
            self._act(action, dict(values))
            return
        self._card.redraw()

    def _below(self, number: int, finding: Finding) -> str:
        """The buttons below a card, and what they have shown."""
        if self._card.diagnosis is not self._of:
            self._of = self._card.diagnosis
            self._opened, self._answers = {}, {}
        opened = self._opened.get(number, "")
        has_lesson = bool(pitfalls.all_of(finding.code))
        buttons = render.row(number, lesson=has_lesson, opened=opened)
        return buttons + self._answers.get(number, "")

    def _close(self, number: int) -> None:
        self._opened.pop(number, None)
        self._answers.pop(number, None)

    def _open(self, action: str, number: int, finding: Finding) -> None:
        if action == "explain":
            answer = render.answer(render.page(finding.code), number)
        else:
            told = pitfalls.all_of(finding.code)[0]
            script = told.broken.read_text(encoding="utf-8")
            shown = lesson.lesson(told.title, script, told.finding, told.why, told.look, told.fix, told.difference)
            answer = render.answer(shown, number, closes=True)
        self._opened[number], self._answers[number] = action, answer
