"""The parts of the dashboard that unfold, in their order."""

from __future__ import annotations

from typing import Any

from ddpnb.panels.part import Part
from ddpnb.panels.parts.breakpoints import HoldAndStep
from ddpnb.panels.parts.curves import TrainingCurves
from ddpnb.panels.parts.faults import InjectFaults
from ddpnb.panels.parts.frames import ExecutedLines, MergedStacks, VariablesByRank
from ddpnb.panels.parts.history import LastRuns
from ddpnb.panels.parts.output import OutputOfRanks
from ddpnb.panels.parts.replicas import Replicas
from ddpnb.panels.parts.running import Lesson, WhatToRun
from ddpnb.panels.parts.startup import StartUp
from ddpnb.panels.parts.tensor import TensorByRank

PARTS: tuple[type[Part[Any]], ...] = (
    WhatToRun,
    Lesson,
    LastRuns,
    HoldAndStep,
    InjectFaults,
    StartUp,
    VariablesByRank,
    TensorByRank,
    MergedStacks,
    ExecutedLines,
    Replicas,
    TrainingCurves,
    OutputOfRanks,
)
