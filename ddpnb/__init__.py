"""ddpnb: the debugger for PyTorch distributed training that lives in a notebook.

Lazy (PEP 562): importing a sub-package on a rank must not pull the notebook's stack.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ddpnb.model import writers

if TYPE_CHECKING:
    from ddpnb.bisection.search import Search, SearchResult, Step, Trial
    from ddpnb.bisection.space import Probe
    from ddpnb.bisections import bisect
    from ddpnb.comparing import RunComparison, compare_runs
    from ddpnb.control.bisecting import Bisection
    from ddpnb.control.breakpoints import Holding
    from ddpnb.control.comparison import Comparison, TensorDifference
    from ddpnb.control.doctor import Checkup
    from ddpnb.control.faults import Injection
    from ddpnb.control.release import Freed
    from ddpnb.control.restart import Restarted
    from ddpnb.control.results import Evaluation, Evaluations, FrameDiff, WorldStatus
    from ddpnb.control.run import Run
    from ddpnb.control.startup import Startup
    from ddpnb.control.tensors import TensorByRank
    from ddpnb.errors import (
        CannotWrite,
        DdpnbError,
        DeviceError,
        LaunchError,
        Released,
        ScriptNotFound,
        UsageError,
        WorldError,
    )
    from ddpnb.explanation import Explanation, explain
    from ddpnb.job import FoundJob, Job, attach, jobs
    from ddpnb.launching import doctor, launch
    from ddpnb.loading import load
    from ddpnb.model.checks import Check
    from ddpnb.model.curves import Curves, RankCurves
    from ddpnb.model.ending import Ending
    from ddpnb.model.faults import Fault
    from ddpnb.model.findings import Diagnosis, Finding, FindingType, Hint
    from ddpnb.model.holds import Hold
    from ddpnb.model.parting import Harmless, Parting, Way
    from ddpnb.model.rank_state import RankState
    from ddpnb.model.recording import Recording
    from ddpnb.model.startup import StartupState, StepState
    from ddpnb.model.tensors import TensorFacts, ValueDifference
    from ddpnb.panels import guide, show
    from ddpnb.panels.panel import Panel
    from ddpnb.recorder.checkpoints import checkpoint
    from ddpnb.recorder.components import component
    from ddpnb.reenacting import Reenactment, export, reenact
    from ddpnb.render.account import TimeAccount
    from ddpnb.render.parting import Partings, partings
    from ddpnb.render.source_lines import SourceLines, lines
    from ddpnb.rules.diagnose import diagnose
    from ddpnb.views.status import RankStatus
    from ddpnb.world import World

__version__ = "0.1.0"
writers.register(lambda: importlib.import_module("ddpnb.render.nouns"))

_NAMES = {
    "ddpnb.bisection.search": "Search SearchResult Step Trial",
    "ddpnb.bisection.space": "Probe",
    "ddpnb.bisections": "bisect",
    "ddpnb.comparing": "RunComparison compare_runs",
    "ddpnb.control.bisecting": "Bisection",
    "ddpnb.control.breakpoints": "Holding",
    "ddpnb.control.comparison": "Comparison TensorDifference",
    "ddpnb.control.doctor": "Checkup",
    "ddpnb.control.faults": "Injection",
    "ddpnb.control.release": "Freed",
    "ddpnb.control.restart": "Restarted",
    "ddpnb.control.results": "Evaluation Evaluations FrameDiff WorldStatus",
    "ddpnb.control.run": "Run",
    "ddpnb.control.startup": "Startup",
    "ddpnb.control.tensors": "TensorByRank",
    "ddpnb.rules.diagnose": "diagnose",
    "ddpnb.errors": "CannotWrite DdpnbError DeviceError LaunchError Released ScriptNotFound UsageError WorldError",
    "ddpnb.explanation": "Explanation explain",
    "ddpnb.job": "FoundJob Job attach jobs",
    "ddpnb.launching": "doctor launch",
    "ddpnb.loading": "load",
    "ddpnb.model.faults": "Fault",
    "ddpnb.model.findings": "Diagnosis Finding FindingType Hint",
    "ddpnb.model.holds": "Hold",
    "ddpnb.model.parting": "Harmless Parting Way",
    "ddpnb.model.rank_state": "RankState",
    "ddpnb.model.recording": "Ending Recording",
    "ddpnb.model.startup": "StartupState StepState",
    "ddpnb.model.tensors": "TensorFacts ValueDifference",
    "ddpnb.panels": "guide show",
    "ddpnb.panels.panel": "Panel",
    "ddpnb.model.checks": "Check",
    "ddpnb.model.curves": "Curves RankCurves",
    "ddpnb.recorder.checkpoints": "checkpoint",
    "ddpnb.recorder.components": "component",
    "ddpnb.reenacting": "Reenactment export reenact",
    "ddpnb.render.account": "TimeAccount",
    "ddpnb.render.parting": "Partings partings",
    "ddpnb.render.source_lines": "SourceLines lines",
    "ddpnb.views.status": "RankStatus",
    "ddpnb.world": "World",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Bisection",
    "CannotWrite",
    "Check",
    "Checkup",
    "Comparison",
    "Curves",
    "DdpnbError",
    "DeviceError",
    "Diagnosis",
    "Ending",
    "Evaluation",
    "Evaluations",
    "Explanation",
    "Fault",
    "Finding",
    "FindingType",
    "FoundJob",
    "FrameDiff",
    "Freed",
    "Harmless",
    "Hint",
    "Hold",
    "Holding",
    "Injection",
    "Job",
    "LaunchError",
    "Panel",
    "Parting",
    "Partings",
    "Probe",
    "RankCurves",
    "RankState",
    "RankStatus",
    "Recording",
    "Reenactment",
    "Released",
    "Restarted",
    "Run",
    "RunComparison",
    "ScriptNotFound",
    "Search",
    "SearchResult",
    "SourceLines",
    "Startup",
    "StartupState",
    "Step",
    "StepState",
    "TensorByRank",
    "TensorDifference",
    "TensorFacts",
    "TimeAccount",
    "Trial",
    "UsageError",
    "ValueDifference",
    "Way",
    "World",
    "WorldError",
    "WorldStatus",
    "attach",
    "bisect",
    "checkpoint",
    "compare_runs",
    "component",
    "diagnose",
    "doctor",
    "explain",
    "export",
    "guide",
    "jobs",
    "launch",
    "lines",
    "load",
    "partings",
    "reenact",
    "show",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'ddpnb' has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext ddpnb`` registers the magics."""
    importlib.import_module("ddpnb.magics").load(shell)


def __dir__() -> list[str]:
    return ["__version__", *__all__]
