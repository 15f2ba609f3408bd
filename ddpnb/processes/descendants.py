"""Processes that a world's ranks have started: found by their environment, also where their parent has died."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection

import psutil

from ddpnb.recorder.protocol import FOLDER


def end(folder: str, rank: int | None = None, spare: Collection[int] = ()) -> None:
    """Kill the processes that ranks of a world have started, with their descendants' own sessions too.

    A child in a session of its own is no descendant of anybody once its rank has died. It still has the environment of
    the rank, and no other world has the same folder. A process that got the number of an ended one
    since is left alone: psutil compares the start times.

    Args:
        folder: of the world, as its ranks have it in their environment.
        rank: only what has this rank in its environment; by default all.
        spare: processes that are left alone, with all that descends from them.
    """
    wanted = {FOLDER: folder} | ({} if rank is None else {"RANK": str(rank)})
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or not wanted.items() <= process.environ().items():
                continue
            if not spare or not {process.pid, *(parent.pid for parent in process.parents())} & {*spare}:
                process.kill()
        except (psutil.Error, OSError):  # it has ended, or belongs to another user
            continue


def of_folder(folder: str) -> list[int]:
    """The processes that have this folder in their environment, but for this one."""
    found: list[int] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(FOLDER) == folder:
                found.append(process.pid)
    return found
