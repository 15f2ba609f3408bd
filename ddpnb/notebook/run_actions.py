"""What can be done with a whole run: save its Recording, export a script, share a page, copy a report."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from ddpnb.errors import UsageError
from ddpnb.notebook.tasks import Tasks
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording
from ddpnb.render import answers, card_actions, report
from ddpnb.render.answers import Answer
from ddpnb.rules.diagnose import diagnose
from ddpnb.studies.reenactment import reenact as reenacting
from ddpnb.studies.reenactment.header import FIRST_LINES
from ddpnb.texts import shell_word

_SAVED, SCRIPT, _PAGE = "hang.ddpnb", "repro.py", "hang.html"


class RunActions:
    """The actions of the head that concern the whole run. ``take`` starts one in the background; its answer is the head's.

    What they do, ``Recording.save()``, ``ddpnb.export()``, ``Recording.to_html()`` and ``Diagnosis.to_markdown()`` do as well.

    Args:
        tasks: runs the actions.
        read: gives the Recording, and its diagnosis if it is known; it may ask the ranks.
    """

    def __init__(self, tasks: Tasks, read: Callable[[], tuple[Recording, Diagnosis | None]]) -> None:
        self._tasks, self._read = tasks, read
        self._text = ""
        #: the report that was copied, to be read before it is sent
        self.report = Fragment(label="report", on_action=self._answered)
        self._does = {
            "save": ("saving", lambda _: self._save()),
            "export": ("writing the script", self._export),
            "share": ("writing the page", lambda _: self._share()),
            "report": ("writing the report", lambda _: self._copy()),
        }

    def take(self, action: str, values: Mapping[str, str]) -> bool:
        """Start this action; False if it is none of these."""
        if action not in self._does:
            return False
        what, does = self._does[action]
        self._tasks.start(what, lambda: does(values))
        return True

    def forget(self) -> None:
        """Another run has begun: the report is of the one before."""
        self._text = ""
        self.report.show("")

    def _save(self) -> Answer:
        path = free(_SAVED)
        self._read()[0].save(path)
        return answers.written(f'Saved: {path}. Read it with: ddpnb.load("{path}")', path)

    def _export(self, values: Mapping[str, str]) -> Answer:
        path = values.get("script", "").strip() or SCRIPT
        if os.path.exists(path) and not is_ours(path):
            raise UsageError(
                f"{path} is there, and is not a script that ddpnb has written.", "Give another name, or move that file."
            )
        ranks = reenacting.export(self._read()[0], path)
        return answers.written(
            f"Written: {path}. Run it with: torchrun --nproc-per-node {ranks} {shell_word(path)}", path
        )

    def _share(self) -> Answer:
        path = free(_PAGE)
        self._read()[0].to_html(path)
        said = f"Written: {path}, one file with output, variables and lines of code: read it before you send it."
        return answers.written(said, path)

    def _copy(self) -> None:
        recording, diagnosis = self._read()
        self._text = report.markdown(recording, diagnosis if diagnosis is not None else diagnose(recording))
        self._show(None)
        self.report.send({"kind": "copy", "text": self._text})

    def _answered(self, action: str, values: Mapping[str, str]) -> None:
        del values
        if action == "close report":
            self.report.show("")
        elif action in ("copied", "not copied") and self._text:
            self._show(action == "copied")

    def _show(self, copied: bool | None) -> None:
        self.report.show(card_actions.report(self._text, copied), self._text)


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
