"""The parts of the dashboard that unfold, in their order."""

from __future__ import annotations

from typing import Any

from ddpnb.notebook.part import Part
from ddpnb.notebook.parts.breakpoints import HoldAndStep
from ddpnb.notebook.parts.curves import TrainingCurves
from ddpnb.notebook.parts.faults import InjectFaults
from ddpnb.notebook.parts.frames import ExecutedLines, MergedStacks
from ddpnb.notebook.parts.history import LastRuns
from ddpnb.notebook.parts.output import OutputOfRanks
from ddpnb.notebook.parts.replicas import Replicas
from ddpnb.notebook.parts.running import Lesson, WhatToRun
from ddpnb.notebook.parts.startup import StartUp

PARTS: tuple[type[Part[Any]], ...] = (
    WhatToRun,
    Lesson,
    LastRuns,
    HoldAndStep,
    InjectFaults,
    StartUp,
    MergedStacks,
    ExecutedLines,
    Replicas,
    TrainingCurves,
    OutputOfRanks,
)
