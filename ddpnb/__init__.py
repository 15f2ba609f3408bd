"""ddpnb: the debugger for PyTorch distributed training that lives in a notebook.

Lazy (PEP 562): importing a sub-package on a rank must not pull the notebook's stack.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpnb.control.doctor import Checkup
    from ddpnb.control.run import Run
    from ddpnb.errors import Released
    from ddpnb.explanation import Explanation, explain
    from ddpnb.model.faults import Fault
    from ddpnb.model.recording import Recording
    from ddpnb.model.recording_file import load
    from ddpnb.observe.verdict import Verdict, diagnose
    from ddpnb.panels import show
    from ddpnb.world import World, doctor, launch

__version__ = "0.1.0"

_HOMES = {
    "launch": "ddpnb.world",
    "load": "ddpnb.model.recording_file",
    "show": "ddpnb.panels",
    "doctor": "ddpnb.world",
    "Checkup": "ddpnb.control.doctor",
    "Fault": "ddpnb.model.faults",
    "Recording": "ddpnb.model.recording",
    "Released": "ddpnb.errors",
    "World": "ddpnb.world",
    "Run": "ddpnb.control.run",
    "Verdict": "ddpnb.observe.verdict",
    "diagnose": "ddpnb.observe.verdict",
    "explain": "ddpnb.explanation",
    "Explanation": "ddpnb.explanation",
}

__all__ = [
    "Checkup",
    "Explanation",
    "Fault",
    "Recording",
    "Released",
    "Run",
    "Verdict",
    "World",
    "diagnose",
    "doctor",
    "explain",
    "launch",
    "load",
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
