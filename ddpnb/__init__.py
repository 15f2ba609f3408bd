"""ddpnb: the debugger for PyTorch distributed training that lives in a notebook.

Lazy (PEP 562): importing a sub-package on a rank must not pull the notebook's stack.
"""

from __future__ import annotations

import importlib
import os
import sys


def _ends_at_once() -> None:
    """Let Ctrl-C end a command of ours without a traceback until it handles signals itself (``recording.interrupts``)."""
    if sys.orig_argv[1:3] == ["-m", "ddpnb"] or os.path.basename((sys.argv or [""])[0]) == "ddpnb":
        import signal

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


_ends_at_once()

from typing import TYPE_CHECKING, Any  # noqa: E402

from ddpnb import private_builtins  # noqa: E402

private_builtins.install()  # before the first of those modules

from ddpnb.recording import writers  # noqa: E402

if TYPE_CHECKING:
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
    from ddpnb.notebook import guide, show
    from ddpnb.notebook.panel import Panel
    from ddpnb.recorder.collectives.same import same
    from ddpnb.recorder.events.checkpoints import checkpoint
    from ddpnb.recorder.process.components import component
    from ddpnb.recording.checks import Check
    from ddpnb.recording.curves import Curves, RankCurves
    from ddpnb.recording.ending import Ending
    from ddpnb.recording.faults import Fault
    from ddpnb.recording.findings import Diagnosis, Finding, FindingType, Hint
    from ddpnb.recording.holds import Hold
    from ddpnb.recording.parting import Harmless, Parting, Way
    from ddpnb.recording.rank_state import RankState
    from ddpnb.recording.recording import Recording
    from ddpnb.recording.startup import StartupState, StepState
    from ddpnb.recording.tensors import TensorFacts, ValueDifference
    from ddpnb.render.account import TimeAccount
    from ddpnb.render.explanation import Explanation
    from ddpnb.render.parting import Partings, partings
    from ddpnb.render.source_lines import SourceLines, lines
    from ddpnb.render.stacks import Stacks, stacks
    from ddpnb.render.views.status import RankStatus
    from ddpnb.rules.diagnose import diagnose
    from ddpnb.studies.bisection.bisect import bisect
    from ddpnb.studies.bisection.bisecting import Bisection
    from ddpnb.studies.bisection.search import Search, SearchResult, Step, Trial
    from ddpnb.studies.bisection.space import Probe
    from ddpnb.studies.comparison import RunComparison, compare_runs
    from ddpnb.studies.reenactment.reenact import Reenactment, export, reenact
    from ddpnb.world.breakpoints import Holding
    from ddpnb.world.comparison import Comparison, TensorDifference
    from ddpnb.world.debugging import Debugging
    from ddpnb.world.doctor import Checkup
    from ddpnb.world.explaining import explain
    from ddpnb.world.faults import Injection
    from ddpnb.world.job import FoundJob, Job, attach, jobs
    from ddpnb.world.launching import doctor, launch
    from ddpnb.world.loading import load
    from ddpnb.world.release import Freed
    from ddpnb.world.restart import Restarted
    from ddpnb.world.results import Evaluation, Evaluations, FrameDiff, WorldStatus
    from ddpnb.world.run import Run
    from ddpnb.world.startup import Startup
    from ddpnb.world.tensors import TensorByRank
    from ddpnb.world.world import World

__version__ = "0.1.0"
writers.register(lambda: importlib.import_module("ddpnb.render.nouns"))

_NAMES = {
    "ddpnb.studies.bisection.search": "Search SearchResult Step Trial",
    "ddpnb.studies.bisection.space": "Probe",
    "ddpnb.studies.bisection.bisect": "bisect",
    "ddpnb.studies.comparison": "RunComparison compare_runs",
    "ddpnb.studies.bisection.bisecting": "Bisection",
    "ddpnb.world.breakpoints": "Holding",
    "ddpnb.world.comparison": "Comparison TensorDifference",
    "ddpnb.world.debugging": "Debugging",
    "ddpnb.world.doctor": "Checkup",
    "ddpnb.world.faults": "Injection",
    "ddpnb.world.release": "Freed",
    "ddpnb.world.restart": "Restarted",
    "ddpnb.world.results": "Evaluation Evaluations FrameDiff WorldStatus",
    "ddpnb.world.run": "Run",
    "ddpnb.world.startup": "Startup",
    "ddpnb.world.tensors": "TensorByRank",
    "ddpnb.rules.diagnose": "diagnose",
    "ddpnb.errors": "CannotWrite DdpnbError DeviceError LaunchError Released ScriptNotFound UsageError WorldError",
    "ddpnb.render.explanation": "Explanation",
    "ddpnb.world.explaining": "explain",
    "ddpnb.world.job": "FoundJob Job attach jobs",
    "ddpnb.world.launching": "doctor launch",
    "ddpnb.world.loading": "load",
    "ddpnb.recording.faults": "Fault",
    "ddpnb.recording.findings": "Diagnosis Finding FindingType Hint",
    "ddpnb.recording.holds": "Hold",
    "ddpnb.recording.parting": "Harmless Parting Way",
    "ddpnb.recording.rank_state": "RankState",
    "ddpnb.recording.recording": "Ending Recording",
    "ddpnb.recording.startup": "StartupState StepState",
    "ddpnb.recording.tensors": "TensorFacts ValueDifference",
    "ddpnb.notebook": "guide show",
    "ddpnb.notebook.panel": "Panel",
    "ddpnb.recording.checks": "Check",
    "ddpnb.recording.curves": "Curves RankCurves",
    "ddpnb.recorder.events.checkpoints": "checkpoint",
    "ddpnb.recorder.process.components": "component",
    "ddpnb.recorder.collectives.same": "same",
    "ddpnb.studies.reenactment.reenact": "Reenactment export reenact",
    "ddpnb.render.account": "TimeAccount",
    "ddpnb.render.parting": "Partings partings",
    "ddpnb.render.source_lines": "SourceLines lines",
    "ddpnb.render.stacks": "Stacks stacks",
    "ddpnb.render.views.status": "RankStatus",
    "ddpnb.world.world": "World",
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
    "Debugging",
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
    "Stacks",
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
    "same",
    "show",
    "stacks",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'ddpnb' has no attribute {name!r}")


_MAGICS = (
    "ddp ddp_rank ddp_launch ddp_show ddp_close ddp_status ddp_why ddp_diff ddp_hold ddp_step ddp_resume ddp_release ddp_restart "
    "ddp_inject ddp_heal"
)


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext ddpnb`` registers the magics. Where ``import ddpnb`` is a cell, the first magic does that."""
    importlib.import_module("ddpnb.notebook.magics").load(shell)


def _offer_magics() -> None:
    """In a notebook: the first of the magics loads all of them. Costs nothing before; ranks have no use for them."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    offer = getattr(getattr(shell, "magics_manager", None), "register_lazy", None)
    if offer is not None and "DDPNB_FOLDER" not in os.environ:
        for name in _MAGICS.split():
            offer(name, __name__)


_offer_magics()


def __dir__() -> list[str]:
    return ["__version__", *__all__]
