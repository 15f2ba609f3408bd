"""What the main thread of a process waits for in the kernel. Standard library only: launchers use it too."""

from __future__ import annotations

import os

_SYSCALLS = {
    "x86_64": {
        0: "read", 1: "write", 7: "poll", 23: "select", 34: "pause", 35: "nanosleep", 43: "accept",
        42: "connect", 45: "recvfrom", 47: "recvmsg", 61: "wait4", 72: "fcntl", 73: "flock",
        202: "futex", 230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 270: "select",
        271: "poll", 281: "epoll_wait", 288: "accept",
    },
    "aarch64": {
        63: "read", 64: "write", 72: "select", 73: "poll", 101: "nanosleep", 115: "clock_nanosleep",
        98: "futex", 32: "flock", 25: "fcntl", 202: "accept", 203: "connect", 207: "recvfrom",
        212: "recvmsg", 22: "epoll_wait", 260: "wait4", 95: "waitid",
    },
}.get(os.uname().machine, {})  # fmt: skip

_WORDS = {
    "futex": "a lock", "flock": "a file lock", "fcntl": "a file lock", "wait4": "a child process",
    "waitid": "a child process", "accept": "a connection", "connect": "a connection",
    "recvfrom": "a socket", "recvmsg": "a socket", "poll": "a file or socket",
    "select": "a file or socket", "epoll_wait": "a file or socket", "pause": "a signal",
    "nanosleep": "sleep()", "clock_nanosleep": "sleep()",
}  # fmt: skip


def system_call(pid: int, process: str = "") -> tuple[str, list[int]]:
    """The system call in which the main thread of a process is, and its arguments.

    Args:
        pid: the process.
        process: its folder in ``/proc``, where that is not ``pid``.

    Returns:
        Name and arguments; both are empty where the system does not show them, or the thread is running.
    """
    try:
        with open(f"/proc/{process or pid}/task/{pid}/syscall") as file:
            fields = file.read().split()
        number, *args = [int(field, 0) for field in fields[:7]]
    except (OSError, ValueError):
        return "", []
    return _SYSCALLS.get(number, ""), args


def words(name: str, args: list[int], process: str = "self") -> str:
    """What a system call waits for, in words; empty for one that does not wait.

    Args:
        name, args: as ``system_call`` gives them.
        process: the folder of the process in ``/proc``.
    """
    waits_for = _WORDS.get(name, "")
    if name in ("read", "write", "flock", "fcntl", "accept", "recvfrom", "recvmsg", "connect") and args:
        return f"{waits_for or name + '()'}{_target(args[0], process)}"
    return waits_for


def _target(fd: int, process: str) -> str:
    try:
        path = os.readlink(f"/proc/{process}/fd/{fd}")
    except OSError:
        return ""
    if fd == 0 or path.startswith("/dev/"):
        return f" on {path}" + (" (standard input)" if fd == 0 else "")
    return f" on {path}" if path.startswith("/") else f" ({path.split(':')[0]})"
