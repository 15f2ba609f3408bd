"""A dump as its reader gives it: its entries, as columns, and its different calls: signatures, lines and stacks, shared by ranks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ddpnb.recording.calls import NO_SITE, OPERATIONS, P2P_OPS, Group, Signature, Site
from ddpnb.recording.names import given_name, one_line
from ddpnb.recording.stacks import MAX_FRAMES, Frame
from ddpnb.reports.dumps.entries import COLUMNS, DROPPED, SILENT
from ddpnb.reports.operations import agreed, operation

_DTYPES = {
    "byte": "uint8", "char": "int8", "short": "int16", "int": "int32", "long": "int64", "half": "float16",
    "float": "float32", "double": "float64", "complexhalf": "complex32", "complexfloat": "complex64",
    "complexdouble": "complex128",
}  # fmt: skip
_MESSAGE = re.compile(r"(?:\w{1,32}:)?\w{1,24} (\d{1,7})(->|<-)(\d{1,7})$")
_LIBRARY = re.compile(
    r"site-packages/|dist-packages/|/lib(?:64)?/python\d|^<|/ddpnb/(?:recorder|processes)/|\.(?:cpp|cc|cu|c|h|so)\b"
)
_TORCH = re.compile(
    r"(?:^|/)torch/(?:_\w{1,40}|distributed|nn|optim|autograd|utils|cuda|fx|jit|futures|multiprocessing)(?:/|\.py)"
)
_NOTEBOOK = re.compile(r"^<(?:ipython-input|stdin|string)")


@dataclass(frozen=True, slots=True)
class Row:
    """One of the different calls of a dump.

    Args:
        group: a place in the table's groups.
        message: whether it is point-to-point.
        own, peer: of a send or a receive, the ranks in the group; -1: not known.
        signature: with ``agreed``.
        site: the user's line.
        frames: of the call, outermost first.
        silent: its backend notes that it ended, but not how.
    """

    group: int
    message: bool
    own: int
    peer: int
    signature: Signature
    site: Site
    frames: tuple[Frame, ...]
    silent: bool


@dataclass(frozen=True, slots=True)
class Table:
    """The different calls of a dump, and its groups: name, label and number."""

    rows: tuple[Row, ...]
    groups: tuple[tuple[str, str, str], ...]


Ints = np.ndarray[tuple[int], np.dtype[Any]]


class Columns(NamedTuple):
    """What the entries of one rank hold, in their order (``entries.COLUMNS``)."""

    calls: Ints
    seq: Ints
    number: Ints
    created: Ints
    done: Ints
    thread: Ints
    state: Ints


@dataclass(slots=True, eq=False)
class Dump:
    """One dump that was read.

    Args:
        place: of its file among all.
        table, columns: its calls and entries.
        facts: of its rank (``entries.columns``).
        rank: who wrote it; -1: not known yet.
        groups: those of the table, as the job has them.
    """

    place: int
    table: Table
    columns: Columns
    facts: dict[str, Any]
    rank: int = -1
    groups: Sequence[Group] = field(default=())

    @property
    def present(self) -> Ints:
        """The places of the entries that are calls."""
        return np.flatnonzero(self.columns.state != DROPPED)

    def made(self, wanted: Callable[[Row], bool]) -> Ints:
        """Of each entry, whether it is a call like this."""
        chosen = np.array([wanted(row) for row in self.table.rows], bool)
        return chosen[self.columns.calls] & (self.columns.state != DROPPED)


def columns(held: Sequence[bytes]) -> Columns:
    """The columns that a reader sent."""
    return Columns(*(np.array(np.frombuffer(own, code)) for own, code in zip(held, COLUMNS.values(), strict=True)))


def read(text: bytes) -> Table:
    """Read the table of ``entries.columns``."""
    held: dict[str, Any] = json.loads(text)
    frames = [_frame(*frame) for frame in held["frames"]]
    stacks = [tuple(frames[place] for place in reversed(stack)) for stack in held["stacks"]]
    sites = [_site(stack) for stack in stacks]
    groups = tuple(
        (one_line(name), given_name("" if label == "undefined" else label), number)
        for name, label, number in held["groups"]
    )
    rows = [
        _row(name, group, message, inputs, outputs, dtypes, stacks[stack][-MAX_FRAMES:], sites[stack])
        for name, group, message, inputs, outputs, dtypes, stack in held["calls"]
    ]
    return Table(tuple(rows), groups)


def _row(
    profiled: str,
    group: int,
    message: bool,
    inputs: list[list[int]],
    outputs: list[list[int]],
    dtypes: list[str],
    frames: tuple[Frame, ...],
    site: Site,
) -> Row:
    op = _operation(profiled)
    shapes = outputs or inputs if op in ("recv", "recv_any_source") else inputs or outputs
    signature = _signature(op, tuple(map(tuple, shapes)), tuple(map(dtype, dtypes)), profiled.partition(":")[0])
    own = peer = -1
    if op in P2P_OPS and (ends := _MESSAGE.match(profiled)):
        first, second = int(ends[1]), int(ends[3])
        source = first if ends[2] == "->" else second
        own, peer = (source, first + second - source) if op == "send" else (first + second - source, source)
    return Row(group, message or op in P2P_OPS, own, peer, signature, site, frames, profiled.startswith(SILENT))


@lru_cache(4096)
def _signature(op: str, shapes: tuple[tuple[int, ...], ...], dtypes: tuple[str, ...], backend: str) -> Signature:
    signature = Signature(op, shapes, dtypes, device="cuda" if backend.startswith(("nccl", "rccl")) else "cpu")
    return replace(signature, agreed=agreed(signature))


@lru_cache(4096)
def _operation(profiled: str) -> str:
    """A batch of one operation has the name of the operation on many tensors, if there is one."""
    op = operation(profiled)
    base = profiled.removesuffix("_coalesced")
    if op in OPERATIONS or base == profiled:
        return op
    plain = operation(base)
    return f"{plain}_coalesced" if f"{plain}_coalesced" in OPERATIONS else plain


def dtype(name: str) -> str:
    """Torch's name of a type in Python: ``"Float"`` is ``"float32"``."""
    return _DTYPES.get(name.lower(), given_name(name.lower()))


@lru_cache(8192)
def _frame(file: str, line: int, function: str) -> Frame:
    path = file.replace("\\", "/")
    user = (
        bool(path)
        and path != "??"
        and (bool(_NOTEBOOK.search(path)) or not (_LIBRARY.search(path) or _TORCH.search(path)))
    )
    return Frame(one_line(file) or "?", line, given_name(function) or "?", user)


def _site(frames: tuple[Frame, ...]) -> Site:
    """The innermost frame of the user's code; else the innermost outside torch."""
    own = [frame for frame in frames if frame.user]
    if not own:
        outside = [frame for frame in frames if frame.file.endswith(".py") and not _is_torch(frame.file)]
        return outside[-1].site if outside else NO_SITE
    via = f"{own[-2].file}:{own[-2].line}" if own[1:] else ""
    return Site(own[-1].file, own[-1].line, own[-1].function, via)


def _is_torch(file: str) -> bool:
    return bool(re.search(r"/torch/|/lib(?:64)?/python\d\.\d{1,3}/(?!site-packages|dist-packages)", file))
