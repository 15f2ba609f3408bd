"""The process groups of this rank: their members, and how many calls each has seen."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Backend

from ddpnb.model.calls import Group
from ddpnb.model.events.runs import FenceOff
from ddpnb.recorder.blackbox import BlackBox
from ddpnb.recorder.fence import Announcements, board_path

_UNHURRIED = timedelta(days=7)


class KnownGroup:
    """What the door keeps of a process group, from its first call on."""

    __slots__ = ("board", "hurry", "identity", "key", "next_seq", "of", "ranks", "returned", "run", "string", "turns")

    def __init__(self, string: int, group: Group, board: Announcements | None, run: int) -> None:
        self.of: Callable[[], Any] = lambda: None  # the process group
        self.string = string
        self.run = run  # in which it was made: the peers have the same number, and so the same board
        self.identity = group
        self.key = group.key
        self.ranks = group.ranks
        self.board = board
        self.next_seq = count(1).__next__
        self.returned: list[int] = []  # numbers of calls that the backend refused: no peer saw them
        self.turns: dict[tuple[str, int, int], int] = {}
        self.hurry: dict[str, timedelta] = {}  # time-outs that are suspended, by device


class Groups:
    """All groups. The order of creation is part of their identity, so it must be the same on all ranks."""

    def __init__(self, box: BlackBox, folder: str, fence: str) -> None:
        self._box = box
        self._folder = folder
        self.fence = fence
        #: by the id of the process group, which it does not keep alive; the door reads it at every call
        self.known: dict[int, KnownGroup] = {}
        self._made: dict[tuple[int, ...], int] = {}  # how many groups with these members came
        self._run = 0
        self._unhurried = self._any_in_python = False
        self._lock = threading.RLock()

    def new_run(self, run: int, fence: str, *, keep: bool) -> None:
        """Forget the groups of the last run, unless they are kept: then their sequence numbers continue."""
        self._run, self.fence = run, fence
        if not keep:
            self.begin_anew()
        for group, known in self._living():
            if (known.board is not None) != (fence != "off"):
                known.board = self._board(known.identity, group, known.run)

    def begin_anew(self) -> None:
        """No group is left: count from the start again."""
        self.known.clear()
        self._made.clear()

    def get(self, group: Any) -> KnownGroup:
        """The entry of this process group; its identity is fixed when it is first seen."""
        key = id(group)
        known = self.known.get(key)
        if known is None:
            with self._lock:
                known = self.known.get(key)
                if known is None:
                    introduced = self._introduce(group)
                    introduced.of = weakref.ref(group, lambda _: self.known.pop(key, None))
                    # A signal handler may have used the group meanwhile, on this thread: what it has counted stays.
                    known = self.known.setdefault(key, introduced)
                    self._made[known.ranks] = known.identity.ordinal + 1
                    self._any_in_python = self._any_in_python or _in_python(group)
        return known

    def _living(self) -> list[tuple[Any, KnownGroup]]:
        found = [(known.of(), known) for known in list(self.known.values())]
        return [(group, known) for group, known in found if group is not None]

    def others(self, mine: Any) -> list[Any]:
        """The process groups of this rank beside one."""
        return [group for group, _ in self._living() if group is not mine and group != mine]

    def _introduce(self, group: Any) -> KnownGroup:
        try:
            ranks = tuple(dist.get_process_group_ranks(group))
        except (KeyError, ValueError, RuntimeError):
            ranks = tuple(range(group.size()))
        ordinal = self._made.get(ranks, 0)
        name = ""
        with contextlib.suppress(RuntimeError):  # of one that is made by hand
            name = str(getattr(group, "group_name", "") or "")
        described = str(getattr(group, "group_desc", "") or "")
        label = described if described and described != "undefined" else ""
        identity = Group(ranks, ordinal, name, label)
        board = self._board(identity, group, self._run)
        known = KnownGroup(self._string(identity), identity, board, self._run)
        if self._unhurried:
            _suspend(group, known)
        return known

    def _string(self, group: Group) -> int:
        return self._box.intern(group.to_json())

    def _board(self, group: Group, process_group: Any, run: int) -> Announcements | None:
        """The shared file for the fence; None if the fence is off, or has nothing to compare or no space.

        With TORCH_DISTRIBUTED_DEBUG=DETAIL torch compares the calls itself, and tells all ranks what it finds.
        """
        compares = self.fence != "off" and len(group.ranks) > 1 and not _compares_itself(process_group)
        me = process_group.rank() if compares else -1
        if me < 0 or not os.path.isdir(self._folder):
            return None
        try:
            return Announcements(board_path(self._folder, run, group.key), len(group.ranks), me)
        except OSError as error:
            self._box.emit(FenceOff(ranks=group.ranks, error=error.strerror or ""))
            print(
                f"ddpnb: {self._folder}: {error.strerror}. The fence is off on this rank for the group of ranks "
                f"{list(group.ranks)}: its calls are not compared with those of the others.",
                file=sys.stderr,
            )
            return None

    def renumber(self) -> None:
        """The box's table of strings has begun again."""
        for known in list(self.known.values()):
            known.string = self._string(known.identity)

    def forget(self, group: Any = None) -> None:
        """Forget a group, or all, before it is destroyed."""
        if group is None or group is dist.group.WORLD:
            self.known.clear()
        else:
            self.known.pop(id(group), None)

    def counts(self) -> list[dict[str, Any]]:
        """For each group the number of its calls that were passed on, and for each peer and tag that of messages."""
        return [
            {
                "key": known.key,
                "ranks": list(known.ranks),
                "calls": _taken(known.next_seq) - len(known.returned),
                "returned": sorted(known.returned),
                "messages": [[*channel, count] for channel, count in list(known.turns.items())],
            }
            for known in list(self.known.values())
        ]

    def timeout_s(self, group: Any) -> float | None:
        """The time-out of a group in seconds, also while it is suspended; None: not known."""
        known = self.known.get(id(group))
        for device, backend in backends(group):
            timeout = _timeout_of(backend)
            if timeout is not None:
                return (known.hurry.get(device, timeout) if known is not None else timeout).total_seconds()
        return None

    def has_ended(self, work: Any) -> bool:
        """Whether a work of a group in Python is over: torch asks it for its future, and for nothing else (2.15).

        Such a work has no time-out either. Those of devices in C++ have one; their futures are done too early.
        """
        if self._any_in_python:
            try:
                _ = work.timeout
            except RuntimeError:
                with contextlib.suppress(Exception):
                    return bool(work.get_future().done())
        return False

    def unhurried(self, wanted: bool) -> None:
        """Suspend the time-outs of the groups while ranks are held, or restore them.

        Calls already in flight keep theirs.
        """
        self._unhurried = wanted
        for group, known in self._living():
            (_suspend if wanted else _restore)(group, known)


def _taken(next_seq: Any) -> int:
    """How many numbers a counter that began at 1 has given; it tells only in its repr without giving another."""
    return int(repr(next_seq.__self__).removeprefix("count(").rstrip(")")) - 1


def backends(group: Any) -> list[tuple[str, Any]]:
    """The back ends of a process group, each with the type of device that it is for, the CPU's first.

    What a group in Python overrides is not called. It may have none, since it is one itself.
    """
    found: list[tuple[str, Any]] = []
    with contextlib.suppress(Exception):
        for device in dist.ProcessGroup._device_types.__get__(group):
            with contextlib.suppress(RuntimeError):  # it is not made yet
                found.append((device.type, dist.ProcessGroup._get_backend(group, device)))
    return sorted(found, key=lambda one: (one[0] != "cpu", one[0]))


def implementation(group: Any) -> str:
    """The classes of the back ends of a group: ``ProcessGroupNCCL2``, ``cpu: ProcessGroupGloo, cuda: ProcessGroupNCCL``."""
    names = {device: type(getattr(one, "wrapped_pg", one)).__name__[:80] for device, one in backends(group)}
    if len(set(names.values())) <= 1:
        return next(iter(names.values()), type(group).__name__[:80])
    return ", ".join(f"{device}: {name}" for device, name in names.items())


def _in_python(group: Any) -> bool:
    return any(hasattr(one, "__dict__") for one in (group, *(backend for _, backend in backends(group))))


def _compares_itself(group: Any) -> bool:
    wrapper: Any = getattr(dist.distributed_c10d, "_ProcessGroupWrapper", ())
    return any(isinstance(backend, wrapper) for _, backend in backends(group))


def _timeout_of(backend: Any) -> timedelta | None:
    """The time-out of the calls of a back end; None: it has none, or does not show it."""
    if _inherits(backend, "options"):
        return None
    with contextlib.suppress(RuntimeError, AttributeError):
        return backend.options._timeout
    return None


def _inherits(backend: Any, name: str) -> bool:
    """Whether a back end in Python has this only from torch's base class: there ``options`` calls itself until the process crashes."""
    return hasattr(backend, "__dict__") and getattr(type(backend), name, None) is getattr(Backend, name, None)


def _set_timeout(backend: Any, timeout: timedelta) -> None:
    if hasattr(backend, "_set_default_timeout"):
        backend._set_default_timeout(timeout)
    elif hasattr(backend, "set_timeout") and not _inherits(backend, "set_timeout"):  # of NCCL2, or in Python
        backend.set_timeout(timeout)


def _suspend(group: Any, known: KnownGroup) -> None:
    for device, backend in backends(group):
        timeout = _timeout_of(backend)
        if timeout not in (None, _UNHURRIED):  # one back end may serve several devices
            known.hurry[device] = timeout
            with contextlib.suppress(RuntimeError):
                _set_timeout(backend, _UNHURRIED)


def _restore(group: Any, known: KnownGroup) -> None:
    for device, backend in backends(group):
        if device in known.hurry:
            with contextlib.suppress(RuntimeError):
                _set_timeout(backend, known.hurry[device])
    known.hurry.clear()
