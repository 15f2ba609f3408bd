"""Variables by rank, the merged stacks, and the source with the ranks that ran its lines."""

from __future__ import annotations

from ddpnb.notebook.part import Context, Part
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.notebook.widgets.parts import Source, Variables
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording
from ddpnb.render import stacks, variables
from ddpnb.render.views.merged_stacks import merge


class VariablesByRank(Part[Variables]):
    name = "variables"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.widget = Variables(on_unfolded=context.ask, on_open=self._open)

    @classmethod
    def still(cls, recording: Recording, diagnosis: Diagnosis) -> Variables | None:
        del diagnosis
        return Variables(recording) if _has_stacks(recording) else None

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


class MergedStacks(Part[Fragment]):
    name = "stacks"
    title, label = "Merged stacks", "stacks of all ranks"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.widget = Fragment(title=self.title, label=self.label, folds=True, on_unfolded=context.ask)

    @classmethod
    def still(cls, recording: Recording, diagnosis: Diagnosis) -> Fragment | None:
        html, text = stacks.of(recording, diagnosis), stacks.text(merge(recording))
        return Fragment(html, text, cls.label, title=cls.title, folds=True) if _has_stacks(recording) else None

    def show_recording(self, recording: Recording, diagnosis: Diagnosis | None) -> None:
        self.widget.show(stacks.of(recording, diagnosis), stacks.text(merge(recording)))


class ExecutedLines(Part[Source]):
    name = "source"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.widget = Source(on_unfolded=context.ask)

    @classmethod
    def still(cls, recording: Recording, diagnosis: Diagnosis) -> Source | None:
        del diagnosis
        known = any(record.path is not None or record.lines is not None for record in recording.ranks.values())
        return Source(recording) if known else None

    def show_recording(self, recording: Recording, diagnosis: Diagnosis | None) -> None:
        del diagnosis
        self.widget.show_recording(recording)


def _has_stacks(recording: Recording) -> bool:
    """Of a report, only what it contains is shown."""
    return recording.report is None or any(record.stacks for record in recording.ranks.values())
