"""Inject faults: the form of one kind of fault, and the armed faults."""

from __future__ import annotations

from collections.abc import Mapping

from ddpnb.notebook.part import Context, Part
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.recording.faults import KINDS
from ddpnb.recording.findings import Diagnosis
from ddpnb.render import faults
from ddpnb.render.controls import Head


class InjectFaults(Part[Fragment]):
    name = "faults"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.widget = self.fragment("Inject faults", "faults")
        self._kind = next(iter(KINDS))  # whose form is shown
        self._enabled = True
        self._missed: list[str] = []
        self._of: object = None  # what is shown

    def refresh(self, head: Head) -> None:
        self._enabled = head.alive
        self._show()

    def outcome_known(self, diagnosis: Diagnosis | None) -> None:
        run = self.context.world.last_run
        self._missed = run.missed if run is not None and diagnosis is not None else []
        self._show()

    def act(self, action: str, values: Mapping[str, str]) -> bool:
        if action != "kind":
            return False
        self._kind = values.get("kind", "")
        self._show()
        return True

    def _show(self) -> None:
        with self.context.tasks.drawing:
            answer = self.context.tasks.answer(self.name)
            armed = [(str(one), "") for one in self.context.actions.injections]
            size, enabled, missed = self.context.world.size, self._enabled, self._missed
            of = self._kind, size, armed, enabled, answer, missed
            if of != self._of:
                self._of = of
                self.widget.show(faults.faults(self._kind, size, armed, enabled=enabled, answer=answer, missed=missed))
