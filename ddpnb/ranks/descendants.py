"""Ends processes with all that they have started, also where a parent has died, and waits until they are gone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator

import psutil

from ddpnb.errors import WorldError
from ddpnb.ranks.process_samples import GONE, all_processes, kernel_status
from ddpnb.recording.protocol import FOLDER, sees_processes

END_S = 20.0  # for processes to end after SIGKILL; one that does not is blocked in the kernel
SOON_S = 2.0  # the same, where nothing else can be done meanwhile
_TICK_S, _LONGEST_TICK_S = 0.002, 0.03


def end(
    pids: Collection[int] = (),
    folder: str = "",
    rank: int | None = None,
    *,
    spare: Collection[int] = (),
    also: Iterable[psutil.Process] = (),
    seconds: float = END_S,
) -> list[int]:
    """Kill processes with all that they have started, and wait until they are gone.

    A child in a session of its own is no descendant of anybody once its parent has died. It still has the environment of
    the rank, and no other world has the same folder. What starts while others are killed is found by the next look: there
    is one after the other until it finds nothing. A process that got the number of an ended one since is left alone:
    psutil compares the start times.

    Args:
        pids: of processes, with their process groups if they lead one. They have not been waited for, or are no more.
        folder: of a world: also the processes that have it in their environment.
        rank: of these only those that have this rank in their environment; by default all.
        spare: processes that are left alone, with all that descends from them.
        also: from ``family``: other processes.
        seconds: for all of them to end.

    Returns:
        Those that have not ended.
    """
    deadline = time.monotonic() + seconds
    found = {process.pid: process for process in (*also, *family(pids))}
    for pid in pids:
        if pid != os.getpgrp():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        if pid not in found and not sees_processes():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    while True:
        left, tick_s = [process for process in found.values() if _kill(process)], _TICK_S
        while left := [process for process in left if not _is_gone(process)]:
            if time.monotonic() > deadline:
                return [process.pid for process in left]
            time.sleep(tick_s)
            tick_s = min(2 * tick_s, _LONGEST_TICK_S)
        found = {process.pid: process for process in _marked(folder, rank, spare)} if folder else {}
        if not found or time.monotonic() > deadline:
            return list(found)


def end_child(process: subprocess.Popen[bytes], seconds: float = END_S) -> None:
    """The same for a process that this one has started, which it then has waited for."""
    if process.poll() is None:
        end([process.pid], seconds=seconds)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(min(seconds, SOON_S))


def check_ended(left: Collection[int], whose: str) -> None:
    """Say that processes have not ended.

    Args:
        left: from ``end``.
        whose: a job or a world.

    Raises:
        WorldError: there are some.
    """
    if left:
        raise WorldError(
            f"processes of this {whose} did not end: {', '.join(map(str, left))}.",
            "They were killed and are blocked in the kernel (state D in ps): look at the disk or the driver.",
        )


def family(pids: Iterable[int]) -> list[psutil.Process]:
    """These processes and what descends from them now."""
    found: list[psutil.Process] = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            found.append(process)
            found += process.children(recursive=True)
    return found


def of_folder(folder: str) -> list[int]:
    """The processes that have this folder in their environment, but for this one."""
    return [process.pid for process in _marked(folder)]


def _marked(folder: str, rank: int | None = None, spare: Collection[int] = ()) -> Iterator[psutil.Process]:
    """The processes that have these in their environment, but for this one."""
    wanted = {FOLDER: folder} | ({} if rank is None else {"RANK": str(rank)})
    for process in all_processes():
        with contextlib.suppress(psutil.Error, OSError):  # it has ended, or belongs to another user
            if process.pid == os.getpid() or not wanted.items() <= process.environ().items():
                continue
            if not spare or not {process.pid, *(parent.pid for parent in process.parents())} & {*spare}:
                yield process


def _kill(process: psutil.Process) -> bool:
    """Kill it; False: it belongs to another user."""
    try:
        process.kill()
    except psutil.AccessDenied:
        return False
    except psutil.Error:  # it has ended
        pass
    return True


def _is_gone(process: psutil.Process) -> bool:
    return kernel_status(process.pid) == GONE or not process.is_running()
