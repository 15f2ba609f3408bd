"""The actions on the cards of findings: explain, show the pitfall, copy as a report, save the Recording, export, share."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping

from ddpnb import pitfalls
from ddpnb.errors import DdpnbError, UsageError
from ddpnb.notebook.widgets.parts import Card
from ddpnb.notebook.widgets.view import Action
from ddpnb.recording.findings import Diagnosis, Finding
from ddpnb.recording.recording import Recording
from ddpnb.render import card_actions as render
from ddpnb.render import lesson
from ddpnb.render.controls import message
from ddpnb.studies.reenactment import reenact as reenacting
from ddpnb.studies.reenactment.header import FIRST_LINES

_SAVED, _SCRIPT, _PAGE = "hang.ddpnb", "repro.py", "hang.html"
_SHOWN = ("explain", "lesson", "report")


class FindingActions:
    """Adds actions to the cards of findings, with an answer below the card that asked.

    What they do, ``ddpnb.explain()``, ``Diagnosis.to_markdown()``, ``Recording.save()``,
    ``ddpnb.export()`` and ``Recording.to_html()`` do as well.

    Args:
        card: with the findings.
        recording: gives the Recording that the findings are of.
        act: takes all other actions of the page.
    """

    def __init__(self, card: Card, recording: Callable[[], Recording], act: Action | None = None) -> None:
        self._card, self._recording, self._act = card, recording, act
        self._of: Diagnosis | None = None  # whose answer is shown
        self._opened: dict[int, str] = {}  # finding -> the action whose answer is shown
        self._answers: dict[int, str] = {}
        self._report, self._busy = "", False
        self._writers = {"save finding": self._save, "export finding": self._export, "share finding": self._share}
        card.on_action, card.below = self.take, self._below
        self._card.redraw()

    def take(self, action: str, values: Mapping[str, str]) -> None:
        """Take an action of the page."""
        number = values.get("number", "")
        findings = self._card.diagnosis.findings if self._card.diagnosis is not None else ()
        if action in ("copied", "not copied"):
            for one, opened in self._opened.items():
                if opened == "report":
                    self._answers[one] = render.report(self._report, action == "copied")
        elif action == "close story":  # of a lesson that stands here
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
        elif action in self._writers:
            self._start(action, int(number), self._writers[action])
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
        buttons = render.row(number, lesson=has_lesson, opened=opened, busy=self._busy)
        return buttons + (render.answer(self._answers[number], number) if number in self._answers else "")

    def _close(self, number: int) -> None:
        self._opened.pop(number, None)
        self._answers.pop(number, None)

    def _open(self, action: str, number: int, finding: Finding) -> None:
        if action == "explain":
            answer = render.page(finding.code)
        elif action == "lesson":
            told = pitfalls.all_of(finding.code)[0]
            script = told.broken.read_text(encoding="utf-8")
            answer = lesson.lesson(told.title, script, told.finding, told.why, told.look, told.fix, told.difference)
        else:
            assert self._card.diagnosis is not None
            self._report = self._card.diagnosis.to_markdown(number)
            answer = render.report(self._report, None)
            self._card.send({"kind": "copy", "text": self._report})
        self._opened[number], self._answers[number] = action, answer

    def _start(self, action: str, number: int, work: Callable[[], str]) -> None:
        """Write a file in the background, and answer below the card, as long as it shows that finding."""
        self._busy, of = True, self._of
        self._opened[number], self._answers[number] = action, message("Writing …")

        def do() -> None:
            try:
                answer = message(work())
            except DdpnbError as error:
                answer = message(str(error), bad=True)
            except Exception as error:  # the panel continues
                answer = message(f"{type(error).__name__}: {error}", bad=True)
            self._busy = False
            if self._of is of:
                self._answers[number] = answer
            self._card.redraw()

        threading.Thread(target=do, name=f"ddpnb {action}", daemon=True).start()

    def _save(self) -> str:
        path = free(_SAVED)
        self._recording().save(path)
        return f'Saved: {path}. Read it with: ddpnb.load("{path}")'

    def _export(self) -> str:
        if os.path.exists(_SCRIPT) and not is_ours(_SCRIPT):
            raise UsageError(f"{_SCRIPT} is there, and is not a script that ddpnb has written.", "Move it away.")
        ranks = reenacting.export(self._recording(), _SCRIPT)
        return f"Written: {_SCRIPT}. Run it with: torchrun --nproc-per-node {ranks} {_SCRIPT}"

    def _share(self) -> str:
        path = free(_PAGE)
        self._recording().to_html(path)
        return f"Written: {path}, one file with output, variables and lines of code: read it before you send it."


def is_ours(path: str) -> bool:
    """Whether ddpnb has written this script."""
    with open(path, "rb") as file:
        return file.read(len(FIRST_LINES)) == FIRST_LINES.encode()


def free(name: str) -> str:
    """This name, or with a number if there is such a file."""
    stem, ending = os.path.splitext(name)
    number, path = 1, name
    while os.path.lexists(path):
        number += 1
        path = f"{stem}-{number}{ending}"
    return path
