"""What the main thread of this process waits for in the kernel, and what is known of the end of that, read from inside."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
import struct
import threading
import time
from dataclasses import dataclass

from ddpnb.recorder.collectives.store_waits import awaited
from ddpnb.recorder.stacks.evaluation import endless
from ddpnb.recorder.stacks.kernel_waits import holders_of, lock_holders, system_call, words
from ddpnb.recorder.stacks.polled_locks import polled_lock
from ddpnb.recording.descriptors import as_socket
from ddpnb.recording.names import one_line


def _machine() -> str:
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()} {os.stat('/proc/self/ns/pid').st_ino}"
    return ""


MACHINE = _machine()  #: where process IDs mean the same


@dataclass(frozen=True)
class Wait:
    """A wait of the main thread. Empty where the system does not show it (not Linux, or the thread is running).

    Args:
        words: what it waits for.
        wakes_at: when it ends by itself, on the monotonic clock; None: there is no time-out.
        holders: the processes that hold the file lock which it waits for.
        received: bytes that have come through the TCP connection which it reads; -1: it reads none.
    """

    words: str = ""
    wakes_at: float | None = None
    holders: tuple[int, ...] = ()
    received: int = -1


def main_wait() -> Wait:
    """The wait in which the main thread is."""
    name, args = system_call(os.getpid(), "self")
    said, holders = words(name, args), lock_holders(name, args)
    main = threading.main_thread().ident
    if name and (keys := awaited(main)):
        said = keys
    elif name in _BETWEEN and (asked := polled_lock(main)) is not None:
        path, without_end = asked
        said, holders = f"a file lock on {path}", holders_of(path) if without_end else []
    if condition := endless.get(main or 0):
        said = f"{said or 'code'}, in the condition '{one_line(condition[:80])}' of a hold that release() ends"
    return Wait(said, _wakes_at(name, args), tuple(holders), _received(name, args))


_BETWEEN = ("clock_nanosleep", "nanosleep", "select", "futex")  # where a thread waits before it asks again


_BITSET, _REALTIME = 9, 256  # of a futex: its time-out is a moment; of which clock
_SWITCHES = re.compile(rb"^voluntary_ctxt_switches:\s*(\d+)", re.MULTILINE)
_seen: tuple[object, float] = None, 0.0  # a wait with a relative time-out, and when it ends


def _wakes_at(name: str, args: list[int]) -> float | None:
    """The moment at which a system call returns by itself; of a relative time-out as of when the wait was first seen."""
    if name == "clock_nanosleep" and len(args) >= 3:
        return _moment(args[2]) if args[:2] == [time.CLOCK_MONOTONIC, 1] else None
    if name == "futex" and len(args) >= 4:
        operation, timeout = args[1], args[3]
        if not timeout or operation & 127 != _BITSET:
            return None
        moment = _moment(timeout)
        if moment is None or not operation & _REALTIME:
            return moment
        seconds = moment - time.time()
    else:
        seconds = _relative(name, args)
    if seconds is None:
        return None
    global _seen
    wait = _voluntary_switches(), name, args
    if _seen[0] != wait:
        _seen = wait, time.monotonic() + seconds
    return _seen[1]


def _relative(name: str, args: list[int]) -> float | None:
    """The time-out of a system call that waits for files or sockets; None: there is none."""
    place = {"epoll_wait": 3, "poll": 2, "select": 4}.get(name)
    if place is None or len(args) <= place or not args[place]:
        return None
    value = args[place]
    if name == "select" or value > 1 << 32:  # of ppoll too it is a pointer
        return _moment(value)
    return value * 1e-3 if value < 1 << 31 else None  # below 0: without end


def _voluntary_switches() -> int:
    """How often the main thread has begun to wait."""
    with contextlib.suppress(OSError), open(f"/proc/self/task/{os.getpid()}/status", "rb") as file:
        found = _SWITCHES.search(file.read())
        return int(found[1]) if found is not None else -1
    return -1


_TCP_INFO_RECEIVED = 128  # where struct tcp_info has tcpi_bytes_received


def _received(name: str, args: list[int]) -> int:
    if name == "poll" and len(args) > 1 and args[1] == 1:
        told = _memory(args[0], 4)
        fd = struct.unpack("<i", told)[0] if told is not None else -1
    else:
        fd = args[0] if name in ("read", "recvfrom", "recvmsg") and args else -1
    if fd < 0:
        return -1
    with contextlib.suppress(OSError, struct.error), as_socket(fd) as connection:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_RECEIVED + 8)
        return int(struct.unpack_from("<Q", info, _TCP_INFO_RECEIVED)[0])
    return -1


def _moment(address: int) -> float | None:
    """Seconds and nanoseconds in this process's own memory."""
    told = _memory(address, 16)
    if told is None:
        return None
    seconds, nanoseconds = struct.unpack("<qq", told)
    return seconds + nanoseconds * 1e-9


class _Span(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _memory(address: int, size: int) -> bytes | None:
    """Bytes of this process: a read by the kernel fails politely where a plain access to a stale address would not."""
    buffer = ctypes.create_string_buffer(size)
    here, there = _Span(ctypes.addressof(buffer), size), _Span(address, size)
    read = ctypes.CDLL(None).process_vm_readv
    return buffer.raw if read(os.getpid(), ctypes.byref(here), 1, ctypes.byref(there), 1, 0) == size else None
