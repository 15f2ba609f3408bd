"""The output of the ranks."""

from __future__ import annotations

from ddpnb.notebook.part import Context, Part
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording
from ddpnb.render import cells
from ddpnb.world.run_output import RunOutput

_SHOWN = 20_000  # the last bytes of a rank


class OutputOfRanks(Part[Fragment]):
    name = "output"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.widget = self.fragment("Output of the ranks", "output of the ranks")

    def unfolded(self) -> None:
        self._show()

    def outcome_known(self, diagnosis: Diagnosis | None) -> None:
        del diagnosis
        self._show()

    def show_recording(self, recording: Recording, diagnosis: Diagnosis | None) -> None:
        del recording, diagnosis
        self._show()

    def _show(self) -> None:
        run = self.context.shown or self.context.world.last_run
        if run is None:
            return
        blocks = RunOutput(run, _SHOWN).blocks()
        self.widget.show(
            cells.html(blocks) if blocks else '<p class="faint">Nothing was written.</p>', cells.text(blocks)
        )
