"""A call as it passed the door: which operation, on which group, at which line."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import Any

from ddpnb.errors import UsageError
from ddpnb.recording import arguments, members
from ddpnb.recording.names import function_name, given_name

UNNAMED = "?"  # a name that the box does not hold: its table of names is full, or it is damaged


class CallState(IntEnum):
    """The state of a call, in the order of its life."""

    ENTERED = 1  # in the door or in the backend's synchronous part
    ISSUED = 2  # handed to the backend; the rank continued
    WAITING = 3  # a thread of the rank waits for it
    COMPLETED = 4
    FAILED = 5  # the backend raised
    FENCED = 6  # the fence stopped it before the backend saw it
    REFUSED = 7  # the backend refused its arguments: no peer has seen it
    DROPPED = 8  # a send or receive whose Work was discarded before a wait()
    HELD = 9  # held before the backend saw it: it is made after the release

    @property
    def in_flight(self) -> bool:
        return self <= CallState.WAITING

    @property
    def seen_by_peers(self) -> bool:
        return self not in (CallState.FENCED, CallState.REFUSED, CallState.HELD)


@dataclass(frozen=True, slots=True)
class Site:
    """Where the user's code made a call."""

    file: str
    line: int
    function: str
    via: str = field(default="", compare=False)  # the line that called this function, if that is the user's too
    library: str = field(default="", compare=False)  # whose thread it was, where no line of the user's led there

    @property
    def placed(self) -> str:
        """``at train.py:7``, ``in a thread of torch.distributed.checkpoint``."""
        return f"in a thread of {self.library}" if self.library and self == NO_SITE else f"at {self}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line or self.file != UNNAMED else "an unknown place"

    def to_json(self) -> dict[str, Any]:
        """File, line and function; empty for ``NO_SITE``."""
        return {"file": self.file, "line": self.line, "function": self.function} if self != NO_SITE else {}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Site:
        line = value.get("line")
        return cls(
            str(value.get("file", UNNAMED)),
            line if isinstance(line, int) else 0,  # it comes from a rank or a file: anything
            function_name(value.get("function", UNNAMED)),
            str(value.get("via", "")),
            given_name(value.get("library", "")),
        )


NO_SITE = Site(UNNAMED, 0, UNNAMED)
#: in ``Signature.agreed``: the call reduces, but how is not known
UNKNOWN_REDUCTION = "?"


@dataclass(frozen=True, slots=True)
class Signature:
    """A call without the values of its tensors.

    ``shapes`` and ``dtypes`` describe the tensors that the rank contributes (for a receive, those
    it fills), ``out_shapes`` those that an all_to_all fills; ``agreed`` is the part that must be the same on every rank
    of the group, as text.
    """

    op: str = UNNAMED
    shapes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    reduce_op: str | None = None
    root: int | None = None
    layout: str | None = None
    in_splits: tuple[int, ...] | None = None
    out_splits: tuple[int, ...] | None = None
    out_shapes: tuple[tuple[int, ...], ...] | None = None
    agreed: str = ""
    device: str = "cpu"

    @property
    def asynchronous(self) -> bool:
        """Whether the host continues while the device is in the call: all devices of torch but the CPU have streams."""
        return self.device not in ("cpu", "meta")

    @property
    def elements(self) -> tuple[int, ...]:
        return tuple(map(math.prod, self.shapes))

    @property
    def without_reduction(self) -> str:
        """What must be the same on every rank, but for the reduction."""
        return self.agreed.replace(f"|{self.reduce_op}", f"|{UNKNOWN_REDUCTION}", 1) if self.reduce_op else self.agreed

    def sends(self, size: int) -> tuple[int, ...] | None:
        """How many elements an all_to_all sends to each of the ``size`` members; None: not known."""
        return _parts(self.shapes, self.in_splits, size)

    def expects(self, size: int) -> tuple[int, ...] | None:
        """How many elements an all_to_all expects from each of the ``size`` members; None: not known."""
        return _parts(self.out_shapes or (), self.out_splits, size)

    @property
    def tensors(self) -> str:
        """``float32 [4, 2], int64 [1]``; without the dtypes where they are not known."""
        shapes = [str(list(shape)) for shape in self.shapes]
        named = [f"{dtype} {shape}" for shape, dtype in zip(shapes, self.dtypes, strict=False)]
        return ", ".join(named if self.dtypes else shapes)

    def __str__(self) -> str:
        tensors = self.tensors
        more = [text for text in (tensors, self.layout) if text]
        if self.reduce_op:
            more.append(self.reduce_op)
        if self.root is not None:
            more.append(f"root {self.root}")
        return f"{self.op}({', '.join(more)})" if self.op != UNNAMED else "an unnamed call"


def _parts(shapes: tuple[tuple[int, ...], ...], splits: tuple[int, ...] | None, size: int) -> tuple[int, ...] | None:
    """The elements for each of the members: of one tensor each, or of a part of one, in rows or all alike."""
    if len(shapes) == size != 1:
        return tuple(map(math.prod, shapes))
    if len(shapes) != 1:
        return None
    count = math.prod(shapes[0])
    if not splits:
        return (count // size,) * size if size and count % size == 0 else None
    rows = sum(splits) or 1
    return tuple(part * count // rows for part in splits) if len(splits) == size else None


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The first and the last of each run of consecutive numbers."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found


_WHOLE = 16  # longer lists are abbreviated


def listed(ranks: Sequence[int]) -> str:
    """The members of a group in their order, abbreviated: ``[0, 1, 2]``, ``[0-1022]``."""
    if len(ranks) <= _WHOLE:
        return str(list(ranks))
    pieces = [str(first) if first == last else f"{first}-{last}" for first, last in runs(ranks)]
    if len(pieces) <= _WHOLE // 4:
        return f"[{', '.join(pieces)}]"
    return f"[{', '.join(map(str, ranks[:4]))} ... {ranks[-1]}: {len(ranks)} ranks]"


@lru_cache(4096)
def _identity(ranks: tuple[int, ...], ordinal: int) -> tuple[tuple[int, ...], str]:
    """The members, as one tuple for all groups that have them, and the key.

    Each of thousands of ranks names thousands of members: lists of their own would take memory by the square of the ranks.
    """
    return ranks, f"{','.join(map(str, ranks))}#{ordinal}"


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A process group. Its identity, the ``key``, is its members and the number of earlier groups with these members.

    The key is read for every call of every rank, so it is built once. ``axes``: along which axes of a DeviceMesh its members
    lie (``tp``, ``dp x cp``); ``at``: the coordinate that they share (``dp=1``).
    """

    ranks: tuple[int, ...]
    ordinal: int = 0
    name: str = field(default="", compare=False)  # local to a rank
    label: str = field(default="", compare=False)
    axes: str = field(default="", compare=False)
    at: str = field(default="", compare=False)
    key: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        ranks, key = _identity(self.ranks, self.ordinal)
        object.__setattr__(self, "ranks", ranks)
        object.__setattr__(self, "key", key)

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, Group) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def title(self) -> str:
        """Its name without its place in a mesh."""
        if self.label:
            return self.label
        if not self.ranks:
            return "an unknown group"
        return f"group {listed(self.ranks)}" + (f" #{self.ordinal + 1}" if self.ordinal else "")

    def __str__(self) -> str:
        axes = "" if self.label == f"mesh_{self.axes}" else self.axes  # torch has named it so
        place = f"{axes} at {self.at}" if axes and self.at else axes or self.at
        return f"{self.title} ({place})" if place else self.title

    def to_json(self) -> dict[str, Any]:
        """What ``from_json`` reads; many members as runs, so that their number does not limit what a black box can hold."""
        place = {"axes": self.axes, "at": self.at} if self.axes else {}
        return {**members.written(self.ranks), "ordinal": self.ordinal, "name": self.name, "label": self.label, **place}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Group:
        return cls(
            members.read(value),
            int(value.get("ordinal", 0)),
            given_name(value.get("name", "")),
            given_name(value.get("label", "")),
            given_name(value.get("axes", "")),
            given_name(value.get("at", "")),
        )


@dataclass(frozen=True, slots=True)
class Call:
    """One call through the door.

    ``number`` counts the calls of the rank from 0; ``seq`` counts the collectives of one group
    from 1 and is 0 for point-to-point calls. Times are nanoseconds of the host's monotonic clock.
    """

    number: int
    group: Group
    seq: int
    signature: Signature
    site: Site
    state: CallState
    thread: int = 0
    peer: int = -1  # point-to-point only: the other rank, -1 for any source
    tag: int = 0
    entered_ns: int = 0
    issued_ns: int = 0
    done_ns: int = 0
    timeout_ms: int = 0  # of an explicit wait(timeout); 0: that of the group
    turn: int = 0  # point-to-point only: its ordinal among those with this operation, peer and tag, from 1
    asked_ns: int = 0  # while it is in flight: when the program asked last whether it is complete

    @property
    def op(self) -> str:
        return self.signature.op

    @property
    def is_p2p(self) -> bool:
        return self.op in P2P_OPS

    @property
    def title(self) -> str:
        """``all_reduce #57``, ``recv from 1``."""
        if self.op == "send":
            return f"send to {self.peer if self.peer >= 0 else 'an unknown rank'}" + (
                f" (tag {self.tag})" if self.tag else ""
            )
        if self.op in ("recv", "recv_any_source"):
            unknown = "from any rank" if self.op == "recv_any_source" else "from an unknown rank"
            source = f"from {self.peer}" if self.peer >= 0 else unknown
            return f"recv {source}" + (f" (tag {self.tag})" if self.tag else "")
        name = self.op if self.op != UNNAMED else "unnamed call"
        return f"{name} #{self.seq}" if self.seq else name


P2P_OPS = frozenset({"send", "recv", "recv_any_source"})
#: all operations that pass the door, by their names in findings (those of ``recorder.collectives.signatures``)
OPERATIONS = (
    "all_reduce", "all_reduce_coalesced", "broadcast", "reduce", "all_gather", "all_gather_into_tensor",
    "all_gather_coalesced", "all_gather_into_tensor_coalesced", "gather", "gather_into_tensor", "scatter",
    "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced", "all_to_all", "all_to_all_single", "barrier",
    "monitored_barrier", "send", "recv", "recv_any_source",
)  # fmt: skip


def check_operation(name: str) -> None:
    """Refuse an unknown operation.

    Raises:
        UsageError: with the name that was probably meant.
    """
    if not isinstance(name, str) or name not in OPERATIONS:  # pyright: ignore[reportUnnecessaryIsInstance]
        near = difflib.get_close_matches(arguments.short(name), OPERATIONS, 1, 0.5)
        hint = f"Did you mean {near[0]!r}?" if near else f"Known operations: {', '.join(OPERATIONS)}."
        raise UsageError(f"unknown operation {arguments.short(name)}.", hint)
