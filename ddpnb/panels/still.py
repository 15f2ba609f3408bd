"""The dashboard of a Recording, without controls."""

from __future__ import annotations

from ddpnb.diagnosis.reported import while_waiting
from ddpnb.model.findings import Diagnosis
from ddpnb.model.recording import Recording
from ddpnb.panels.panel import Panel
from ddpnb.render import markup
from ddpnb.render.report import sources
from ddpnb.widgets.fragment import Fragment
from ddpnb.widgets.parts import parts


class Still(Panel):
    """The findings, the ranks, the time line, the variables and the stacks of one moment; of a report, what was read."""

    def __init__(self, recording: Recording, found: Diagnosis) -> None:
        read = sources(recording)
        head = [Fragment(f'<div class="faint">{markup.text(read)}</div>', read, label="files")] if read else []
        super().__init__([*head, *parts(while_waiting(recording), found)])
