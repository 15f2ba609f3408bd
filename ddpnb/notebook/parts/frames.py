"""The merged stacks, and the source with the ranks that ran its lines."""

from __future__ import annotations

from ddpnb.notebook.part import Context, Part
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.notebook.widgets.parts import Source
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording
from ddpnb.render import stacks


class MergedStacks(Part[Fragment]):
    name = "stacks"
    title, label = "Merged stacks", "stacks of all ranks"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.widget = Fragment(title=self.title, label=self.label, folds=True, on_unfolded=context.ask)

    @classmethod
    def still(cls, recording: Recording, diagnosis: Diagnosis) -> Fragment | None:
        if not _has_stacks(recording):
            return None
        fragment = Fragment(label=cls.label, title=cls.title, folds=True)
        fragment.show_blocks(*stacks.of(recording, diagnosis))
        return fragment

    def show_recording(self, recording: Recording, diagnosis: Diagnosis | None) -> None:
        self.widget.show_blocks(*stacks.of(recording, diagnosis))


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
