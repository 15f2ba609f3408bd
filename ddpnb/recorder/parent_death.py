"""A process of a world dies with its launcher, even when that is killed. Standard library only."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from ddpnb.recorder.protocol import PARENT

_PR_SET_PDEATHSIG, _PR_SET_PTRACER = 1, 0x59616D61


def bind_to_parent(forked_by: int = 0) -> None:
    """Die with the launcher, and let it (and the py-spy that it starts) look inside.

    Linux only: elsewhere the launcher's clean stop has to do.

    Args:
        forked_by: the process that has forked this one for the launcher, and dies with it.
    """
    if sys.platform != "linux":
        return
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    parent = int(os.environ.get(PARENT, "0"))
    if parent:
        prctl(_PR_SET_PTRACER, parent, 0, 0, 0)
        if os.getppid() != (forked_by or parent):  # it died before we asked
            os._exit(1)
