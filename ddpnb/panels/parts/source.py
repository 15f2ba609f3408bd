"""The source, with the ranks that ran its lines."""

from __future__ import annotations

from ddpnb.model.findings import Diagnosis
from ddpnb.model.recording import Recording
from ddpnb.panels.part import Context, Part
from ddpnb.widgets.parts import Source


class ExecutedLines(Part[Source]):
    name = "source"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.widget = Source(on_unfolded=context.ask)

    def show_recording(self, recording: Recording, diagnosis: Diagnosis | None) -> None:
        del diagnosis
        self.widget.show_recording(recording)
