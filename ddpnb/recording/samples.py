"""The file of samples: digests of the replicas of one rank, in a ring, readable from any process of the host.

Layout (little-endian): a header, then a ring of rows of several lengths, none of which wraps. A row
refers to strings of the rank's black box by their number. The writer never waits for a reader; a
reader that was lapped continues with the rows that are there and knows that it lost some.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from ddpnb.recording.calls import NO_SITE, Site
from ddpnb.recording.replicas import Digest, Model, Sample, TensorSpec
from ddpnb.recording.shared import readable

MAGIC = b"ddpnbSM1"
HEADER_SIZE = 4096
RING_SIZE = 8 << 20
FILE_SIZE = HEADER_SIZE + RING_SIZE
# bytes ever written, at which of them the current run began, number of the run
WRITTEN = struct.Struct("<QQQ")
WRITTEN_AT = 8

KINDS = (
    "pad",
    "forward",
    "gradients",
    "updated",
    "backward",
    "clip",
    "scale",
    "outputs",  # this one and the next are of earlier versions
    "local",
    "loss",
    "earlier",
    "start",
    "sent",
)
# length, stamp, model, kind, log2 of the slices, turn, step, site, names, time, units, values
ROW = struct.Struct("<IIHBBIIIIQII")
ROW_SIZE = 48
_NUMBER = struct.Struct("<d")
_BEFORE_LOSS = {"backward": 1, "loss": 0}  # values of a row; of the former whether the inputs are finite
assert ROW.size <= ROW_SIZE
STAMP = 0xDD9B5A1E

CHUNK_WORDS = 16 << 10  # of 4 bytes: a larger tensor is digested in parts, so that a step digests some of it

_WIDTHS = {"float64": 8, "int64": 8, "complex64": 8, "complex128": 16, "float16": 2, "bfloat16": 2, "int16": 2}
_BYTES = {"bool": 1, "uint8": 1, "int8": 1}


def width_of(dtype: str) -> int:
    """Bytes of one element."""
    return _WIDTHS.get(dtype) or _BYTES.get(dtype) or (1 if dtype.startswith("float8") else 4)


def units_of(tensors: Sequence[TensorSpec]) -> list[tuple[int, int, int]]:
    """The parts in which these tensors are digested: (index of the tensor, first element, end)."""
    units: list[tuple[int, int, int]] = []
    for index, tensor in enumerate(tensors):
        elements = math.prod(tensor.shape)
        step = max(1, CHUNK_WORDS * 4 // width_of(tensor.dtype))
        units += [(index, first, min(first + step, elements)) for first in range(0, elements, step)]
    return units


def unit_names(tensors: Sequence[TensorSpec]) -> list[str]:
    """A name for each part; ``tensor_name`` gives back the tensor's."""
    names: list[str] = []
    for index, first, end in units_of(tensors):
        whole = first == 0 and end == math.prod(tensors[index].shape)
        names.append(tensors[index].name + ("" if whole else f"[{first}:{end}]"))
    return names


def first_of(step: int, log2: int) -> int:
    """The first part of the slice (every ``2 ** log2``-th part) that belongs to a step.

    The bits of the step, folded: whichever power of two the steps are multiples of that are looked
    at, as many of them as there are slices one after the other have a slice each.
    """
    first, mask = 0, (1 << log2) - 1
    while step and log2:
        first ^= step & mask
        step >>= log2
    return first


def tensor_name(unit: str) -> str:
    return unit.partition("[")[0]


class SampleReader:
    """Reads new rows of one rank's file.

    Args:
        source: ``FileBytes``, or anything with the buffer protocol (an mmap, bytes).
        string: gives the JSON behind a number of the rank's black box.

    Raises:
        ValueError: the source is not a file of samples.
    """

    def __init__(self, source: Any, string: Callable[[int], Any]) -> None:
        self._source = readable(source)
        if len(self._source) < FILE_SIZE or self._source.read(0, 8) != MAGIC:
            raise ValueError("not a file of samples of ddpnb")
        self._string = string
        self._at = 0
        self._run = -1
        self._units: dict[int, list[str]] = {}
        self.lost = False

    def close(self) -> None:
        self._source.close()

    def _written(self) -> tuple[int, int, int]:
        return WRITTEN.unpack_from(self._source.read(WRITTEN_AT, WRITTEN.size))

    def new_rows(self, run: int) -> list[bytes]:
        """The rows of this run that were written since the last read, as raw bytes."""
        written, began, current = self._written()
        if current != run:
            return []
        if self._run != run:
            self._run, self._at, self.lost = run, began, False
            self._units.clear()
        if written - self._at > RING_SIZE:  # lapped: where rows begin is known only at the end
            self._at, self.lost = written, True
        rows: list[bytes] = []
        while self._at < written:
            place = HEADER_SIZE + self._at % RING_SIZE
            block = self._source.read(place, min(written - self._at, FILE_SIZE - place))
            if not self._take(block, rows, at_end=place + len(block) == FILE_SIZE):
                self._at, self.lost = written, True
        if self._written()[0] - self._at > RING_SIZE // 2:
            self.lost = True  # the writer may have overtaken us while we read
        return rows

    def _take(self, block: bytes, rows: list[bytes], *, at_end: bool) -> bool:
        """Split a block of the ring into rows; False if it is torn."""
        at = 0
        while at < len(block):
            if at + 8 > len(block):
                return False
            length, stamp = struct.unpack_from("<II", block, at)
            end = at + length
            filler = at_end and end == len(block)  # what is left at the end of the ring may be short
            if stamp != STAMP or length < (8 if filler else ROW_SIZE) or end > len(block):
                return False
            if length >= ROW_SIZE and block[at + 10]:  # kind 0 fills the end of the ring
                rows.append(block[at:end])
            self._at += length
            at = end
        return True

    def decode(self, row: bytes, models: Mapping[int, Model]) -> Sample | None:
        """Decode one row; None when it is invalid."""
        try:
            fields: tuple[int, ...] = ROW.unpack_from(row)
            _, _, model, kind, log2, turn, step, site, names, at, units, values = fields
            numbers = array("d", row[ROW_SIZE : ROW_SIZE + 8 * values])
            start = ROW_SIZE + 8 * values
            hashes = array("I", row[start : start + 4 * units])
            norms = array("f", row[start + 4 * units : start + 8 * units])
        except (struct.error, ValueError):
            return None
        if not 0 < kind < len(KINDS) or len(norms) != units or len(numbers) != values:
            return None
        if model not in self._units:
            self._units[model] = unit_names(models[model].tensors) if model in models else []
        log2 = min(log2, 31)
        chosen = self._units[model][first_of(step, log2) :: 1 << log2]
        described = _mapping(self._string(names))
        named = described.pop("names", ())
        names_given = cast("list[Any]", named) if isinstance(named, list) else []
        facts: dict[str, Any] = dict(zip(map(str, names_given), numbers, strict=False)) | described
        bypass = facts.get("bypass")  # the number of a place: where the module was called without its wrapper
        if isinstance(bypass, float) and 0 < bypass < 1 << 32:
            facts["bypass_site"] = self._string(int(bypass))
        place = _mapping(self._string(site))
        return Sample(
            model,
            KINDS[kind],
            turn,
            step,
            at,
            Site.from_json(place) if place else NO_SITE,
            facts,
            {
                name: Digest(hash_, None if math.isnan(norm) else norm)
                for name, hash_, norm in zip(chosen, hashes, norms, strict=False)
                if hash_ or KINDS[kind] == "gradients"  # only a missing gradient is a fact; another tensor is not known
            },
        )


def _mapping(value: Any) -> dict[str, Any]:
    return {str(key): item for key, item in cast("dict[Any, Any]", value).items()} if isinstance(value, dict) else {}


def step_of(row: bytes) -> int:
    """Optimizer steps before a row."""
    return ROW.unpack_from(row)[6]


def loss_of(row: bytes) -> tuple[int, int, float] | None:
    """(model, time, loss) of a row of a backward pass, or of its loss on a device; None of other rows, and where it was not read."""
    fields: tuple[int, ...] = ROW.unpack_from(row)
    _, _, model, kind, _, _, _, _, _, at_ns, _, values = fields
    before = _BEFORE_LOSS.get(KINDS[kind]) if kind < len(KINDS) else None
    if before is None or values <= before or len(row) < ROW_SIZE + 8 * (before + 1):
        return None
    return model, at_ns, _NUMBER.unpack_from(row, ROW_SIZE + 8 * before)[0]


# The values of a row that should be the same on all ranks, by kind: (first, end) among the values.
_ALIKE = {"forward": (0, 2), "gradients": (5, 1 << 20), "clip": (0, 1), "scale": (0, 1)}


def contents(row: bytes) -> tuple[tuple[int, str, int], bytes]:
    """(model, kind, turn) of a row, and what is the same on ranks that agree: slice, digests, some values."""
    fields: tuple[int, ...] = ROW.unpack_from(row)
    _, _, model, kind, log2, turn, step, _, _, _, units, values = fields
    name = KINDS[kind] if kind < len(KINDS) else "?"
    first, end = _ALIKE.get(name, (0, 0))
    start = ROW_SIZE + 8 * values
    alike = row[ROW_SIZE + 8 * first : ROW_SIZE + 8 * min(end, values)]
    return (model, name, turn), struct.pack("<BI", log2, step) + alike + row[start : start + 4 * units]
