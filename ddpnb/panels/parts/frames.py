"""Variables by rank, and the merged stacks."""

from __future__ import annotations

from ddpnb.model.findings import Diagnosis
from ddpnb.model.recording import Recording
from ddpnb.panels.part import Context, Part
from ddpnb.render import variables
from ddpnb.widgets import parts


class VariablesByRank(Part[parts.Variables]):
    name = "variables"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.widget = parts.Variables(on_unfolded=context.ask, on_open=self._open)

    def _open(self, path: str) -> None:
        """Read what is inside a variable."""

        def work() -> str:
            found = self.context.world.diff(name=path).found
            self.widget.show_inside(found)
            return "" if found is not None else variables.NOTHING

        self.context.tasks.start("reading variables", work, quiet=True, again=True)

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
