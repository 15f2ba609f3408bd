"""Replicas: the first tensor in which they differ, and the gradient norms."""

from __future__ import annotations

from ddpnb.notebook.part import Context, Part
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.render import answers, as_html, controls, replicas
from ddpnb.render.figures import canvas, over_time
from ddpnb.render.views.gradient_norms import gradient_norms
from ddpnb.world import comparison


class Replicas(Part[Fragment]):
    name = "replicas"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.widget = self.fragment("Replicas", "replicas")
        self._shown = self._text = ""

    def unfolded(self) -> None:
        self.context.tasks.start("comparing the replicas", self._compare, self.name)

    def refresh(self, head: controls.Head) -> None:
        del head
        self._show()

    def _show(self) -> None:
        with self.context.tasks.drawing:
            answer = self.context.tasks.answer(self.name)
            self.widget.show(answers.html(answer) * bool(answer.busy or answer.said) + self._shown, self._text)

    def _compare(self) -> None:
        found: comparison.Comparison = self.context.world.compare()
        differences = [(found.label(one), one.sides, one.largest, one.norms) for one in found.differences]
        run = self.context.world.last_run
        drift = (
            next((one for one in run.diagnosis.findings if one.tensors), None)
            if run is not None and run.recording is not None
            else None
        )
        blocks = replicas.replicas(
            differences, found.compared, exact=found.exact, since=replicas.since(drift), notes=found.notes
        )
        shown = as_html.html(*blocks)
        norms = gradient_norms(run.recording) if run is not None and run.recording is not None else {}
        if norms:
            drawn = canvas.drawn(over_time.gradients(norms))
            shown += controls.picture(drawn, "gradient norm of each rank, by step", save=False)
        self._shown, self._text = shown, str(found)
        self._show()
