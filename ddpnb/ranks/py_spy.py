"""Stacks of processes that do not answer, read from outside by py-spy."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ddpnb.errors import WorldError
from ddpnb.ranks.process_samples import command_of
from ddpnb.recorder.stacks.kernel_waits import waits_for_itself
from ddpnb.recorder.stacks.user_frames import is_user_file
from ddpnb.recording.names import one_line
from ddpnb.recording.recording import Child
from ddpnb.recording.stacks import MAX_FRAMES, MAX_LOCALS, MAX_THREADS, Stack, stacks_in

TIMEOUT_S = 3.0  # for the stacks of one process
_CHECK_S, _TRIES = 10.0, 3
_MESSAGE = 400  # characters of what py-spy says
_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3\.\d+/")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def py_spy_stacks(pid: int, timeout: float = TIMEOUT_S) -> tuple[Stack, ...]:
    """The stacks of a process that does not answer, by ``py-spy dump``. Empty if that fails too."""
    return as_stacks(plain_stacks(pid, timeout))


def plain_stacks(pid: int, timeout: float = TIMEOUT_S) -> list[dict[str, Any]]:
    """``py_spy_stacks`` as JSON, for ``as_stacks`` on another host."""
    return [
        _described(thread, pid, with_locals=False)
        | {"holds_lock": thread.get("owns_gil") is True and thread.get("active") is False}
        for thread in _threads(pid, timeout)
    ]


def as_stacks(described: Any) -> tuple[Stack, ...]:
    """The stacks that ``plain_stacks`` described."""
    return tuple(
        replace(stack, holds_lock=thread.get("holds_lock") is True)
        for thread in (described[:MAX_THREADS] if isinstance(described, list) else ())
        if isinstance(thread, dict)
        for stack in stacks_in([thread])
    )


def described_stacks(pid: int, timeout: float = TIMEOUT_S) -> list[dict[str, Any]]:
    """The stacks of a process with the variables of the user's frames, as a rank describes them (``stacks_in``).

    The main thread comes first. Empty if they cannot be read.
    """
    described = [_described(thread, pid, with_locals=True) for thread in _threads(pid, timeout, "--locals")]
    return sorted(described, key=lambda stack: not stack["main"])


def check_py_spy(pid: int) -> None:
    """Check that the stacks of this process can be read.

    Raises:
        WorldError: py-spy is missing, the kernel refuses, or this is no Python process that py-spy knows.
    """
    command = _command()
    if command is None:
        raise WorldError(
            "py-spy is missing, which reads the stacks of processes from outside.", "Install it: pip install py-spy"
        )
    said = ""
    for _ in range(_TRIES):  # a process that runs may change while it is read
        try:
            done = subprocess.run(
                [command, "dump", "--nonblocking", "--pid", str(pid)],
                check=False, capture_output=True, text=True, errors="replace", timeout=_CHECK_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            said = f"no answer within {_CHECK_S:.0f} s"
            continue
        except OSError as error:
            said = str(error)
            break
        if done.returncode == 0:
            return
        said = one_line(" ".join(done.stderr.split())[:_MESSAGE])
    if re.search(r"permi|EPERM|ptrace", said, re.IGNORECASE):
        raise WorldError(
            f"the kernel does not let py-spy read process {pid}: {said}",
            "Allow it with `sudo sysctl kernel.yama.ptrace_scope=0`, or run this as root; a container needs the "
            "capability SYS_PTRACE.",
        )
    raise WorldError(f"py-spy cannot read process {pid}: {said}", f"`py-spy dump --pid {pid}` shows more.")


def _command() -> str | None:
    return shutil.which("py-spy", path=sysconfig.get_path("scripts")) or shutil.which("py-spy")


def _threads(pid: int, timeout: float, *options: str) -> list[dict[str, Any]]:
    command = _command()
    if command is None:
        return []
    try:
        done = subprocess.run(
            [command, "dump", "--json", "--nonblocking", *options, "--pid", str(pid)],
            capture_output=True, text=True, timeout=timeout, check=True,
        )  # fmt: skip
        threads = json.loads(done.stdout)
    except (OSError, ValueError, RecursionError, subprocess.SubprocessError):
        return []
    return [thread for thread in threads[:MAX_THREADS] if isinstance(thread, dict)] if isinstance(threads, list) else []


_MAX_CHILDREN, _CHILDREN_S = 16, 2.0  # that are examined, and how long that may take in total


def children(descendants: Sequence[tuple[int, str]], idle_s: float, end: float = math.inf) -> tuple[Child, ...]:
    """The children of an idle process with their stacks.

    Args:
        descendants: process ID and the kernel's letter (``ProcessSample.descendants``).
        idle_s: for how long they have been idle, as their parent.
        end: the moment of the monotonic clock from which on no stacks are read.
    """
    return as_children(plain_children(descendants, end), idle_s)


def plain_children(descendants: Sequence[tuple[int, str]], end: float = math.inf) -> list[dict[str, Any]]:
    """``children`` as JSON, for ``as_children`` on another host."""
    end = min(end, time.monotonic() + _CHILDREN_S)
    examined: list[dict[str, Any]] = []
    for pid, letter in descendants[:_MAX_CHILDREN]:
        left = end - time.monotonic()
        stacks = plain_stacks(pid, left) if letter not in ("Z", "X") and left > 0.05 else []
        described = {"pid": pid, "command": command_of(pid, 200), "status": letter, "stacks": stacks}
        examined.append(described | {"stuck": waits_for_itself(pid)})
    return examined


def as_children(described: Any, idle_s: float) -> tuple[Child, ...]:
    """The children that ``plain_children`` described."""
    return tuple(
        Child(
            int(one["pid"]),
            str(one["command"])[:200],
            str(one["status"])[:1],
            idle_s,
            as_stacks(one.get("stacks")),
            one.get("stuck") is True,
        )
        for one in (described[:_MAX_CHILDREN] if isinstance(described, list) else ())
    )


def _described(thread: dict[str, Any], pid: int, *, with_locals: bool) -> dict[str, Any]:
    """A thread as ``Stack.from_json`` takes it."""
    main = thread.get("os_thread_id") in (pid, None) and thread.get("thread_name") in ("MainThread", None)
    frames: list[dict[str, Any]] = []
    given = thread.get("frames")
    for frame in reversed(given[:MAX_FRAMES]) if isinstance(given, list) else ():
        if isinstance(frame, dict):
            file = str(frame.get("filename", "?"))
            entry = {
                "file": file,
                "line": frame.get("line"),
                "function": frame.get("name", "?"),
                "user": _is_users(file),
            }
            if with_locals and entry["user"]:
                entry["locals"] = _variables(frame.get("locals"))
            frames.append(entry)
    ident = thread.get("thread_id")
    return {
        "thread": thread.get("thread_name") or ("MainThread" if main else "?"),
        "frames": frames,
        "native_id": ident >> 6 & 0xFFFFFFFF if isinstance(ident, int) else 0,
        "main": main,
    }


def _is_users(file: str) -> bool:
    """As ``is_user_file``, also for a process of another Python."""
    return is_user_file(file) and (not _INSTALLED.search(file) or "/ddpnb/pitfalls/" in file)


def _variables(given: Any) -> dict[str, str]:
    """The variables of a frame; addresses of objects, which differ on all ranks, are left out."""
    return {
        str(one.get("name")): _ADDRESS.sub("", str(one.get("repr")))
        for one in (given[:MAX_LOCALS] if isinstance(given, list) else ())
        if isinstance(one, dict)
    }
