"""Whose a process is, without the names of users."""

from __future__ import annotations

import os
from contextlib import suppress

import psutil


def owner(pid: int | None, name: str = "") -> str:
    """``python (PID 4711)``, and whether it is another user's; ``name``: where the process itself cannot be asked."""
    if pid is None:
        return "a process of another user"
    with suppress(psutil.Error):
        known = psutil.Process(pid)
        mine = not hasattr(os, "getuid") or known.uids().real == os.getuid()
        return f"{known.name()} (PID {pid}{'' if mine else ', another user'})"
    return f"{os.path.basename(name) or 'a process'} (PID {pid})"
