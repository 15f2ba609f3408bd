"""The environment that starts the recorder in the processes of a job: see ``ddpnb.inject``."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ddpnb.recorder import protocol

SITE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "inject", "site")


# What an IPython kernel sets in its environment, and the value that it sets; None: whatever its value.
_OF_A_KERNEL: Mapping[str, str | None] = {
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "TERM": "xterm-color",
    "CLICOLOR": "1",
    "CLICOLOR_FORCE": "1",
    "FORCE_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "PYDEVD_USE_FRAME_EVAL": "NO",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    "JPY_PARENT_PID": None,
    "JPY_SESSION_NAME": None,
}


def without_kernel(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without what the kernel of a notebook has set."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _OF_A_KERNEL or _OF_A_KERNEL[name] not in (None, value) or "JPY_PARENT_PID" not in environment
    }


def injected(environment: Mapping[str, str], folder: str, fence: str, backend: str | None = None) -> dict[str, str]:
    """An environment with the recorder in it.

    Args:
        environment: to begin with.
        folder: of the job.
        fence: ``raise``, ``warn`` or ``off``.
        backend: that scripts get, whichever they ask for; None: the one they ask for.
    """
    before = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry != SITE]
    path = [SITE, *before] if environment.get("PYTHONPATH") else [SITE]
    given = {
        protocol.JOB: folder,
        protocol.FOLDER: folder,
        protocol.FENCE: fence,
        protocol.PARENT: str(os.getpid()),
        "PYTHONPATH": os.pathsep.join(path),
    }
    return {**environment, **given, **({protocol.BACKEND: backend} if backend else {})}
