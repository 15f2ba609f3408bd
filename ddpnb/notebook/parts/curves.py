"""Training curves: loss, memory and use of each rank over time, of the last run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ddpnb.errors import UsageError
from ddpnb.notebook.part import Context, Part
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.recording.files import write_whole
from ddpnb.recording.findings import Diagnosis
from ddpnb.render import answers, controls
from ddpnb.render.answers import Answer
from ddpnb.render.figures import canvas, curves
from ddpnb.render.views import curves as views

_WORDS = "loss, memory and use of each rank over time"


class TrainingCurves(Part[Fragment]):
    name = "curves"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.widget = self.fragment("Training curves", "training curves")
        self._opened = False
        self._drawn, self._sentence = b"", ""

    def unfolded(self) -> None:
        self._opened = True
        self._start()

    def outcome_known(self, diagnosis: Diagnosis | None) -> None:
        """Another run has begun, or its outcome is known: draw that one."""
        del diagnosis
        if self._opened:
            self._start(quiet=True)

    def act(self, action: str, values: Mapping[str, str]) -> bool:
        del values
        if action == "draw":
            self._start()
        elif action in ("save PNG", "save SVG"):
            self.context.tasks.start("saving", lambda: self._save(action[-3:].lower()), self.name)
        else:
            return False
        return True

    def plot(self, ax: Any = None) -> Any:
        """Draw what the buttons save.

        Args:
            ax: matplotlib Axes to draw the loss on; None: a new figure with all quantities.

        Returns:
            The Axes.
        """
        return curves.curves(self._rows() or views.rows(None), ax)

    def _start(self, *, quiet: bool = False) -> None:
        self.context.tasks.start("drawing", self._draw, self.name, quiet=quiet)

    def _rows(self) -> tuple[views.CurveRow, ...]:
        run = self.context.world.last_run
        if run is None:
            return ()
        picture = self.context.picture
        recording = run.recording or (picture.recording if picture is not None and picture.run is run else None)
        if recording is None:
            return views.rows(run.curves)
        return views.rows(views.curves_of(recording, run.curves))

    def _draw(self) -> None:
        rows = self._rows()
        if not rows:
            self.widget.show('<p class="faint">Nothing has run yet.</p>', "nothing has run yet")
            return
        self._drawn, self._sentence = canvas.drawn(_figure(rows)), views.sentence(rows)
        self._show()

    def refresh(self, head: controls.Head) -> None:
        del head
        if self._drawn:
            self._show()

    def _show(self) -> None:
        with self.context.tasks.drawing:
            answer = self.context.tasks.answer(self.name)
            self.widget.show(controls.picture(self._drawn, _WORDS, again=True, answer=answer), self._sentence)

    def _save(self, kind: str) -> Answer:
        rows = self._rows()
        if not rows:
            raise UsageError("nothing has run yet.")
        path = f"ddpnb-curves.{kind}"
        write_whole(path, canvas.drawn(_figure(rows), kind))
        return answers.written(f"Saved: {path}.", path)


def _figure(rows: tuple[views.CurveRow, ...]) -> Any:
    return curves.curves(rows)
