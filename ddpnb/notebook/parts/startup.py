"""Start-up, step by step."""

from __future__ import annotations

from ddpnb.notebook.part import Context, Part
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording
from ddpnb.render import startup
from ddpnb.render.controls import Head


class StartUp(Part[Fragment]):
    name = "startup"
    for_worlds = True
    title, label = "Start-up, step by step", "start-up of the ranks"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.widget = self.fragment(self.title, self.label, live=True)

    @classmethod
    def still(cls, recording: Recording, diagnosis: Diagnosis) -> Fragment | None:
        del diagnosis
        if recording.startup is None:
            return None
        steps = Fragment(label=cls.label, title=cls.title, folds=True)
        steps.show_blocks(*startup.document(recording.startup))
        return steps

    def refresh(self, head: Head) -> None:
        world = self.context.world
        starting = None if world.closed else world.startup
        state = starting.state if starting is not None else None
        notes = starting.notes() if starting is not None else ()
        answer = self.context.tasks.answer(self.name)
        stepping = "making a step of start-up" in head.busy
        html = startup.startup(state, world.size, notes, busy=stepping, enabled=head.alive, answer=answer)
        self.widget.show(html, str(starting) if starting else "")
