"""Stacks of processes that do not answer, read from outside by py-spy."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Sequence
from typing import Any

from ddpnb.model.recording import Child
from ddpnb.model.stacks import Frame, Stack
from ddpnb.recorder.user_frames import is_user_file

TIMEOUT_S = 3.0  # for the stacks of one process


def py_spy_stacks(pid: int, timeout: float = TIMEOUT_S) -> tuple[Stack, ...]:
    """The stacks of a process that does not answer, by ``py-spy dump``. Empty if that fails too."""
    command = shutil.which("py-spy", path=sysconfig.get_path("scripts")) or shutil.which("py-spy")
    if command is None:
        return ()
    try:
        done = subprocess.run(
            [command, "dump", "--json", "--nonblocking", "--pid", str(pid)],
            capture_output=True, text=True, timeout=timeout, check=True,
        )  # fmt: skip
        threads = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()
    return tuple(_stack(thread, pid) for thread in threads if isinstance(thread, dict))


_MAX_CHILDREN, _CHILDREN_S = 16, 2.0  # that are examined, and how long that may take in total


def children(descendants: Sequence[tuple[int, str]], idle_s: float, end: float = math.inf) -> tuple[Child, ...]:
    """The children of an idle process with their stacks.

    Args:
        descendants: process ID and the kernel's letter (``ProcessSample.descendants``).
        idle_s: for how long they have been idle, as their parent.
        end: the moment of the monotonic clock from which on no stacks are read.
    """
    end = min(end, time.monotonic() + _CHILDREN_S)
    examined: list[Child] = []
    for pid, letter in descendants[:_MAX_CHILDREN]:
        left = end - time.monotonic()
        stacks = py_spy_stacks(pid, left) if letter not in ("Z", "X") and left > 0.05 else ()
        examined.append(Child(pid, _command(pid), letter, idle_s, stacks))
    return tuple(examined)


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(400).replace(b"\0", b" ").decode("utf-8", "replace").strip()[:200]
    except OSError:
        return ""


def _stack(thread: dict[str, Any], pid: int) -> Stack:
    frames = [
        Frame(
            str(frame.get("filename", "?")),
            int(frame.get("line") or 0),
            str(frame.get("name", "?")),
            is_user_file(str(frame.get("filename", "?"))),
        )
        for frame in reversed(thread.get("frames", []))
    ]
    main = thread.get("os_thread_id") in (pid, None) and thread.get("thread_name") in ("MainThread", None)
    name = str(thread.get("thread_name") or ("MainThread" if main else "?"))
    holds = thread.get("owns_gil") is True and thread.get("active") is False
    return Stack(name, tuple(frames), int(thread.get("thread_id") or 0) >> 6 & 0xFFFFFFFF, main, holds)
