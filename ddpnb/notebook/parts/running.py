"""What to run: a script or a pitfall; and the lesson of a pitfall."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping

from ddpnb import pitfalls
from ddpnb.notebook import folders
from ddpnb.notebook.part import Context, Part
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.recording.findings import Diagnosis
from ddpnb.render import controls, lesson, script_chooser

_SCRIPTS = 200  # that are offered
_OF_PITFALL = "run a pitfall"  # where the answers of its form are shown


class WhatToRun(Part[Fragment]):
    name = "run"
    for_worlds = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.widget = self.fragment("Run", "what to run")
        self._shown: object = None
        self._folder = "."  # that was chosen from last
        self._chooser = ""  # as HTML; empty while it is closed

    def act(self, action: str, values: Mapping[str, str]) -> bool:
        if action == "browse":
            typed = os.path.dirname(values.get("script", "").strip())
            self._browse("" if self._chooser else typed or self._folder)
        elif action == "folder":
            self._browse(values.get("folder", ""))
        else:
            return False
        return True

    def _browse(self, path: str) -> None:
        """Show the scripts of this folder; an empty path closes the chooser."""
        if path == script_chooser.CLOSE:
            self._chooser = ""
        else:
            found = folders.look(path)
            self._folder = found.path
            self._chooser = script_chooser.chooser(
                found.path, found.folders, found.scripts, here=os.getcwd(), left_out=found.left_out, error=found.error
            )
        self.context.tasks.draw()

    def refresh(self, head: controls.Head) -> None:
        answers = [self.context.tasks.answer(place) for place in (self.name, _OF_PITFALL)]
        shown = head.alive, head.in_run, head.busy, answers, self._chooser
        if shown == self._shown:
            return
        self._shown = shown
        scripts = sorted(glob.glob("*.py"))[:_SCRIPTS]
        free = head.alive and not head.in_run and not head.busy
        stories = lesson.offered(pitfalls.by_chapter())
        of_script, of_pitfall = answers
        self.widget.show(
            controls.runs(
                stories,
                scripts,
                chooser=self._chooser,
                enabled=free,
                going=head.in_run,
                script_answer=of_script,
                pitfall_answer=of_pitfall,
            )
        )

    def place_of(self, action: str) -> str:
        return _OF_PITFALL if action in ("pitfall", "story") else self.name


class Lesson(Part[Fragment]):
    name = "lesson"
    for_worlds = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.widget = Fragment(label="lesson", on_action=self.take)
        self._of: object = None  # the run of a fixed script that was shown

    def outcome_known(self, diagnosis: Diagnosis | None) -> None:
        """After a fixed script: what was changed."""
        ran = self.context.actions.fixed
        if ran is None or diagnosis is None or ran is self._of or ran[0] is not self.context.world.last_run:
            return
        self._of, story = ran, ran[1]
        shown = lesson.repaired(story.title, story.fix, story.difference, ok=diagnosis.outcome == "ok")
        self.widget.show(shown, f"{story.fix}\n\n{story.difference}")

    def act(self, action: str, values: Mapping[str, str]) -> bool:
        if action == "close story":
            self.widget.show("")
            return True
        if action != "story":
            return False
        self.context.tasks.start("reading", lambda: self._read(values.get("name", "")), _OF_PITFALL)
        return True

    def _read(self, name: str) -> None:
        story = pitfalls.get(name)
        script = story.broken.read_text(encoding="utf-8")
        shown = lesson.lesson(story.title, script, story.finding, story.why, story.look, story.fix, story.difference)
        self.widget.show(shown, f"{story}\n\n{script}")
