"""What the main thread of a process waits for in the kernel, and who can end that. Standard library only: launchers use it too."""

from __future__ import annotations

import os
import signal
from itertools import islice

from ddpnb.recording.protocol import RELEASE_SIGNAL

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
        said = waits_for or f"{name}()"
        kind = _target(args[0], process)
        return said if said.endswith(kind.strip(" ()")) else f"{said}{kind}"
    return waits_for


def _target(fd: int, process: str) -> str:
    try:
        path = os.readlink(f"/proc/{process}/fd/{fd}")
    except OSError:
        return ""
    if fd == 0 or path.startswith("/dev/"):
        return f" on {path}" + (" (standard input)" if fd == 0 else "")
    return f" on {path}" if path.startswith("/") else f" ({path.split(':')[0]})"


_LOCK_KINDS = {"flock": ("FLOCK",), "fcntl": ("POSIX", "OFDLCK")}
_LOCKS = 10_000  # lines of /proc/locks that are read


def lock_holders(name: str, args: list[int], process: str = "self") -> list[int]:
    """The processes that hold the file lock for which a system call waits, which it alone can end.

    Args:
        name, args: as ``system_call`` gives them.
        process: the folder of the process in ``/proc``.

    Returns:
        Process IDs; empty where it waits for something else, or a holder is not known.
    """
    kinds = _LOCK_KINDS.get(name)
    return holders_of(f"/proc/{process}/fd/{args[0]}", kinds) if kinds is not None and args else []


def holders_of(path: str, kinds: tuple[str, ...] = ("FLOCK",)) -> list[int]:
    """The processes that hold a lock of one of these kinds on a file; empty where one of them is not known."""
    try:
        file = os.stat(path)
        with open("/proc/locks") as locks:
            lines = [line.split() for line in islice(locks, _LOCKS)]
    except OSError:
        return []
    at = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    # "1: FLOCK ADVISORY WRITE 4711 fd:01:1234 0 EOF"; of one that waits for it "1: -> FLOCK ..."
    held = [int(fields[4]) for fields in lines if len(fields) > 5 and fields[1] in kinds and fields[5] == at]
    return held if all(pid > 0 for pid in held) else []


_FUTEX_WAITS, _PRIVATE = (0, 9), 128
# Of these a Python program has a handler that does not release locks: of Python itself, faulthandler, torch, or ddpnb.
_HARMLESS = (
    signal.SIGINT, signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV, signal.SIGTERM,
    signal.SIGCHLD, 32, 33, RELEASE_SIGNAL,
)  # fmt: skip


def waits_for_itself(pid: int) -> bool:
    """Whether a process can never continue: its only thread waits, without a time-out, for a lock in its own memory.

    So it is in a forked process with a lock that another thread of its parent held. Another thread could release the lock,
    and a handler of a signal.
    """
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        with open(f"/proc/{pid}/status") as file:
            caught = next(int(line.split()[1], 16) for line in file if line.startswith("SigCgt:"))
    except (OSError, ValueError, StopIteration):
        return False
    name, args = system_call(pid)
    if len(threads) != 1 or name != "futex" or len(args) < 4:
        return False
    operation, timeout = args[1], args[3]
    within = operation & _PRIVATE and operation & (_PRIVATE - 1) in _FUTEX_WAITS and timeout == 0
    return bool(within) and not caught & ~sum(1 << int(number) - 1 for number in _HARMLESS)
