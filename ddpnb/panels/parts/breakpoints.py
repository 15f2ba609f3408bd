"""Hold and step: the forms for holds, steps and expressions."""

from __future__ import annotations

from ddpnb.panels.part import Context, Part
from ddpnb.render import controls
from ddpnb.widgets.fragment import Fragment


class HoldAndStep(Part[Fragment]):
    name = "hold"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.widget = self.fragment("Hold and step", "hold and step")

    def refresh(self, head: controls.Head) -> None:
        armed = [str(one) for one in self.context.actions.holds]
        self.widget.show(controls.hold(self.context.world.size, armed, enabled=head.alive))
