"""The dashboard of a Recording, without controls."""

from __future__ import annotations

from ddpnb.model.findings import Diagnosis
from ddpnb.model.recording import Recording
from ddpnb.panels.panel import Panel
from ddpnb.widgets.parts import parts


class Still(Panel):
    """The findings, the ranks, the time line, the variables and the stacks of one moment."""

    def __init__(self, recording: Recording, found: Diagnosis) -> None:
        super().__init__(parts(recording, found))
