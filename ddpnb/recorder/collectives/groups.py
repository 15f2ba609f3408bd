"""The process groups of this rank: their members, their place in a mesh, and how many calls each has seen.

A group may be of a class that is written in Python: what it overrides is not called here, since it may raise, or wait.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import count, product
from math import prod
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend

from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.files.boards import Announcements, Places, board_path
from ddpnb.recording import blackbox as layout
from ddpnb.recording.calls import Group
from ddpnb.recording.events.runs import FenceOff

_UNHURRIED = timedelta(days=7)
_MESHES, _AXES, _AXIS = 16, 8, 40  # that are kept, axes of each, characters of a name


class Mesh(NamedTuple):
    """A DeviceMesh: the names and lengths of its axes, and the coordinate of each rank."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    places: dict[int, tuple[int, ...]]

    def place(self, group: Group) -> tuple[str, str, tuple[bool, bool, bool, int]] | None:
        """Along which axes a group lies, the coordinate of its members on the others, and how well that describes it.

        None where it is no part of the mesh along whole axes.
        """
        if any(rank not in self.places for rank in group.ranks):
            return None
        of_members = list(zip(*(self.places[rank] for rank in group.ranks), strict=True))
        along = [axis for axis, places in enumerate(of_members) if len(set(places)) > 1]
        if not along or prod(self.shape[axis] for axis in along) != len(group.ranks):
            return None
        axes = " x ".join(self.names[axis] for axis in along)
        others = [axis for axis, length in enumerate(self.shape) if length > 1 and axis not in along]
        at = ", ".join(f"{self.names[axis]}={of_members[axis][0]}" for axis in others)
        named = group.label == f"mesh_{axes}"
        return axes, at, (bool(named and at), bool(at), named, -len(along))


class KnownGroup:
    """What the door keeps of a process group, from its first call on."""

    __slots__ = (
        "board",
        "hurry",
        "identity",
        "key",
        "next_seq",
        "of",
        "places",
        "ranks",
        "returned",
        "run",
        "string",
        "turns",
    )

    def __init__(self, string: int, group: Group, board: Announcements | None, run: int) -> None:
        self.of: Callable[[], Any] = lambda: None  # the process group
        self.string = string
        self.run = run  # in which it was made: the peers have the same number, and so the same board
        self.identity = group
        self.key = group.key
        self.ranks = group.ranks
        self.board = board
        self.places: Any = None  # what ``recorder.holds.parted`` keeps
        self.next_seq = count(1).__next__
        self.returned: list[int] = []  # numbers of calls that the backend refused: no peer saw them
        self.turns: dict[tuple[str, int, int], int] = {}
        self.hurry: dict[str, timedelta] = {}  # time-outs that are suspended, by device


class Groups:
    """All groups. The order of creation is part of their identity, so it must be the same on all ranks."""

    def __init__(self, box: BlackBox, folder: str, fence: str) -> None:
        self._box = box
        self._rank: int = layout.IDENTITY.unpack_from(box.memory, 0)[2]
        self._folder = folder
        self.fence = fence
        #: by the id of the process group, which it does not keep alive; the door reads it at every call
        self.known: dict[int, KnownGroup] = {}
        self._made: dict[tuple[int, ...], int] = {}  # how many groups with these members came
        self._meshes: list[Mesh] = []
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
        self._meshes.clear()

    def get(self, group: Any) -> KnownGroup:
        """The entry of this process group; its identity is fixed when it is first seen."""
        key = id(group)
        known = self.known.get(key)
        if known is None:
            with self._lock:
                known = self.known.get(key)
                if known is None:
                    introduced = self._introduce(group, _members(group))
                    # A signal handler may have used the group meanwhile, on this thread: what it has counted stays.
                    known = self.known.setdefault(key, introduced)
                    self._count(known)
                    self._any_in_python = self._any_in_python or _in_python(group)
        return known

    def reconfigured(self, group: Any) -> None:
        """A group gets other members: which, is not known. What was called in it before has nothing to do with what follows."""
        with self._lock:
            known = self.known[id(group)] = self._introduce(group, ())
            self._count(known)

    def _count(self, known: KnownGroup) -> None:
        ranks = known.identity.ranks
        self._made[ranks] = max(self._made.get(ranks, 0), known.identity.ordinal + 1)

    def _living(self) -> list[tuple[Any, KnownGroup]]:
        found = [(known.of(), known) for known in list(self.known.values())]
        return [(group, known) for group, known in found if group is not None]

    def others(self, mine: Any) -> list[Any]:
        """The process groups of this rank beside one."""
        return [group for group, _ in self._living() if group is not mine and group != mine]

    def meets(self, names: Sequence[str], ranks: torch.Tensor) -> Mesh | None:
        """A mesh was made: groups are named by their place in it, also those that come later. None: it is known already.

        Args:
            names: of its axes.
            ranks: at each coordinate.
        """
        shape = tuple(ranks.shape)
        if len(self._meshes) >= _MESHES or not 0 < len(shape) == len(names) <= _AXES:
            return None
        places = dict(zip(ranks.flatten().tolist(), product(*map(range, shape)), strict=True))
        mesh = Mesh(tuple(str(name)[:_AXIS] for name in names), shape, places)
        with self._lock:
            if mesh in self._meshes:
                return None
            self._meshes.append(mesh)
            for known in list(self.known.values()):
                placed = self._placed(known.identity)
                if placed is not known.identity:
                    known.identity, known.string = placed, self._string(placed)
        return mesh

    def _placed(self, group: Group) -> Group:
        """The group with its place in a mesh, if it lies along whole axes of one. The default group has its own name."""
        found = [place for mesh in self._meshes if (place := mesh.place(group))] if group.label != _DEFAULT else []
        if not found:
            return group
        axes, at, _ = max(found, key=lambda place: place[2])
        return replace(group, axes=axes, at=at) if (axes, at) != (group.axes, group.at) else group

    def _introduce(self, group: Any, members: tuple[int, ...]) -> KnownGroup:
        ranks = members or (self._rank,)
        described = _own(group, "group_desc")
        label = described if described != "undefined" else ""
        if not label and (type(group) is not dist.ProcessGroup or not members):
            label = type(group).__name__[:_AXIS]
        identity = self._placed(Group(ranks, self._made.get(ranks, 0), _name(group), label))
        board = self._board(identity, group, self._run)
        known = KnownGroup(self._string(identity), identity, board, self._run)
        if not members:
            known.ranks = ()  # whom a message is for
        key = id(group)
        known.of = weakref.ref(group, lambda _: self.known.pop(key, None))
        if self._unhurried:
            _suspend(group, known)
        return known

    def _string(self, group: Group) -> int:
        return self._box.intern(group.to_json())

    def _board(self, group: Group, process_group: Any, run: int) -> Announcements | None:
        """The shared file for the fence; None if the fence is off, or has nothing to compare or no space.

        With TORCH_DISTRIBUTED_DEBUG=DETAIL torch compares the calls itself, and tells all ranks what it finds.
        """
        if self.fence == "off" or _compares_itself(process_group):
            return None
        me = self._member(group, process_group)
        if me < 0:
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

    def _member(self, group: Group, process_group: Any) -> int:
        """Which member of a group this rank is; -1 where it has nobody to compare its calls with."""
        with contextlib.suppress(Exception):
            if len(group.ranks) > 1 and os.path.isdir(self._folder):
                return dist.ProcessGroup.rank(process_group)
        return -1

    def shared_places(self, known: KnownGroup) -> Places | None:
        """Where the members of a group say from where they call; None: there is nothing to compare.

        Raises:
            OSError: there is no room.
        """
        me = self._member(known.identity, known.of())
        if me < 0:
            return None
        return Places(f"{board_path(self._folder, known.run, known.key)}places", len(known.identity.ranks), me)

    def shared_values(self, known: KnownGroup | None, what: str) -> tuple[Places, tuple[int, ...]] | None:
        """Where ranks announce values under a name, and which ranks; of a group, or (None) of all. None: nothing to compare with.

        Raises:
            OSError: there is no room.
        """
        if known is None:
            size = dist.get_world_size() if dist.is_initialized() else int(os.environ.get("WORLD_SIZE", "1"))
            ranks, me, key, run = tuple(range(size)), self._rank, "all ranks", self._run
        else:
            me, ranks, key, run = self._member(known.identity, known.of()), known.identity.ranks, known.key, known.run
        if not 0 <= me < len(ranks) or len(ranks) < 2 or not os.path.isdir(self._folder):
            return None
        path = board_path(self._folder, run, f"{key}\n{what}")
        return Places(f"{path}values", len(ranks), me), ranks

    def renumber(self) -> None:
        """The box's table of strings has begun again."""
        for known in list(self.known.values()):
            known.string = self._string(known.identity)

    def forget(self, group: Any = None) -> None:
        """Forget a group, or all, before it is destroyed."""
        if group is None or group is dist.group.WORLD:
            self.known.clear()
            self._meshes.clear()
        else:
            self.known.pop(id(group), None)

    def counts(self) -> list[dict[str, Any]]:
        """For each group the number of its calls that were passed on, and for each peer and tag that of messages."""
        return [
            {
                "key": known.key,
                "ranks": list(known.identity.ranks),
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


_DEFAULT = "default_pg"


def _own(group: Any, name: str) -> str:
    """A property of a group as torch has it, whatever its class makes of it; empty where there is none."""
    with contextlib.suppress(Exception):
        return str(getattr(dist.ProcessGroup, name).__get__(group) or "")
    return ""


def _name(group: Any) -> str:
    """Under which name torch knows a group; empty of one that is made by hand."""
    with contextlib.suppress(Exception):
        return _own(group, "group_name") or str(dist.distributed_c10d._world.pg_names[group])
    return ""


def _members(group: Any) -> tuple[int, ...]:
    """The ranks of a group; empty of one that torch does not know, which may have members outside of this world."""
    with contextlib.suppress(Exception):
        return tuple(dist.get_process_group_ranks(group))
    return ()
