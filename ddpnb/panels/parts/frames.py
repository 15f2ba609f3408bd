"""Variables by rank, and the merged stacks."""

from __future__ import annotations

from ddpnb.model.findings import Diagnosis
from ddpnb.model.recording import Recording
from ddpnb.panels.part import Context, Part
from ddpnb.widgets import parts


class VariablesByRank(Part[parts.Variables]):
    name = "variables"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.widget = parts.Variables(on_unfolded=context.ask)

    def run_began(self) -> None:
        self.widget.fold()

    def show_recording(self, recording: Recording, diagnosis: Diagnosis | None) -> None:
        del diagnosis
        self.widget.show_recording(recording)

    def outcome_known(self, diagnosis: Diagnosis | None) -> None:
        if diagnosis is not None and diagnosis.outcome == "hang":
            self.widget.unfold()


class MergedStacks(Part[parts.Stacks]):
    name = "stacks"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.widget = parts.Stacks(on_unfolded=context.ask)

    def show_recording(self, recording: Recording, diagnosis: Diagnosis | None) -> None:
        self.widget.show_recording(recording, diagnosis)
