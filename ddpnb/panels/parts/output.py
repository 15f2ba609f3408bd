"""The output of the ranks."""

from __future__ import annotations

from ddpnb.model.findings import Diagnosis
from ddpnb.panels.part import Context, Part
from ddpnb.render import cells
from ddpnb.widgets.fragment import Fragment

_SHOWN = 20_000  # the last characters of a rank


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

    def _show(self) -> None:
        world = self.context.world
        run = world.last_run
        if run is None:
            return
        outputs = {rank: cells.Output(cells.as_seen(run.log(rank)[-_SHOWN:])) for rank in range(world.size)}
        blocks = cells.fold(outputs)
        self.widget.show(
            cells.html(blocks) if blocks else '<p class="faint">Nothing was written.</p>', cells.text(blocks)
        )
