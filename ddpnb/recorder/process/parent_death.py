"""A process of a world dies with its launcher, even when that is killed. Standard library only."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from ddpnb.recording.protocol import PARENT

_PR_SET_PDEATHSIG, _PR_SET_PTRACER = 1, 0x59616D61


def bind_to_parent(forked_by: int = 0) -> None:
    """Die with the launcher, and let it (and the py-spy that it starts) look inside.

    Linux only: elsewhere the launcher's clean stop has to do.

    Args:
        forked_by: the process that has forked this one for the launcher, and dies with it.
    """
    if sys.platform != "linux":
        return
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = int(os.environ.get(PARENT, "0"))
    if parent:
        let_look_inside(parent)
        if os.getppid() != (forked_by or parent):  # it died before we asked
            os._exit(1)


def let_look_inside(pid: int) -> None:
    """Let a process, and the py-spy that it starts, read the memory of this one. Linux only."""
    if sys.platform == "linux":
        _prctl(_PR_SET_PTRACER, pid)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0)
