"""Hold and step: the forms for holds, steps and expressions."""

from __future__ import annotations

from ddpnb.notebook.part import Context, Part
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.render import controls
from ddpnb.render.margin import Mark

_PLACES = ("step", "evaluate")  # of the answers of the second and the third form


class HoldAndStep(Part[Fragment]):
    name = "hold"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.widget = self.fragment("Hold and step", "hold and step")
        self._of: object = None  # what is shown

    def refresh(self, head: controls.Head) -> None:
        armed = [(str(one), Mark(one.on, held)) for one, held in self.context.holds()]
        answered = [self.context.tasks.answer(place) for place in (self.name, *_PLACES)]
        of = self.context.world.size, armed, head.alive, answered
        if of != self._of:
            self._of = of
            self.widget.show(controls.hold(self.context.world.size, armed, enabled=head.alive, answered=answered))

    def place_of(self, action: str) -> str:
        return {"step": _PLACES[0], "resume": _PLACES[0], "evaluate": _PLACES[1]}.get(action, self.name)
