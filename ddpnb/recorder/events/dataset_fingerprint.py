"""What a data set holds, as a small fingerprint that can be compared between ranks.

No code of the user's is run for it: only the attributes that an instance holds itself are read, and
of these only tensors, arrays and plain lists. Costs some milliseconds, once for each data set.

A fingerprint of rows is made of one hash per row: ``order`` tells whether two ranks hold the same rows in the
same order, ``bag`` whether they hold the same rows in any order, and ``sketch`` (the smallest hashes)
how much of two sets is common.
"""

from __future__ import annotations

import ctypes
import hashlib
import heapq
import operator
import pathlib
import zlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils.data import ConcatDataset, StackDataset, Subset, TensorDataset

from ddpnb.recording.events.data import DatasetSeen, Rows

MAX_ROWS = 8_000  # that are hashed
SKETCH = 48
_ROW_BYTES = 256  # of a tensor's row: its middle, since pictures have empty margins
_DEPTH, _BREADTH = 4, 4
_TEXT = 120

# Where data sets keep what they were made from. Another list may be a cache, or the rank's own notes, unless
# it holds a text (a file's name) for each sample.
_NAMES = (
    "samples", "imgs", "images", "image_paths", "img_paths", "files", "filenames", "file_list", "filepaths", "paths",
    "data", "items", "records", "examples", "entries", "lines", "texts", "sentences", "ids", "indices", "index",
    "x", "X", "inputs", "features", "xs", "y", "Y", "targets", "labels", "ys",
)  # fmt: skip


class _NotPlainError(Exception):
    """A value of which nothing is known without asking it."""


def describe(dataset: Any, number_of: Callable[[Any], int], samples: int | None = None, depth: int = 0) -> DatasetSeen:
    """What a data set holds, and the data sets that it is made of.

    ``samples``: its length, where somebody has asked for it already.

    Each part has its number too: two subsets may be parts of one data set.
    """
    kind = type(dataset)
    held = own_attributes(dataset)
    rows: Rows | None = None
    parts: Any = None
    if isinstance(dataset, Subset):
        rows, parts = _fingerprint([held.get("indices")]), [held.get("dataset")]
    elif isinstance(dataset, (ConcatDataset, StackDataset)):
        parts = held.get("datasets")
        parts = list(parts.values()) if type(parts) is dict else parts
    elif isinstance(dataset, TensorDataset):
        rows = _fingerprint(held.get("tensors"))
    elif kind in (list, tuple, range, torch.Tensor):
        rows = _fingerprint([dataset])
    else:
        rows = _of_attributes(held, samples)
    parts = parts if type(parts) in (list, tuple) and depth < _DEPTH else ()
    return DatasetSeen(
        number=number_of(dataset),
        class_name=f"{kind.__module__}.{kind.__qualname__}"[:_TEXT],
        rows=rows,
        parts=tuple(describe(part, number_of, depth=depth + 1) for part in parts[:_BREADTH]),
        left_out=max(0, len(parts) - _BREADTH),
    )


def own_attributes(thing: Any) -> dict[str, Any]:
    """What an instance holds itself, without asking its class for anything."""
    try:
        held = object.__getattribute__(thing, "__dict__")
    except Exception:
        return {}
    return held if type(held) is dict else {}


def head(dataset: Any) -> str:
    """A cheap look at the first rows of a data set: whether it is still what it was."""
    held = own_attributes(dataset)
    columns = held.get("tensors") if isinstance(dataset, TensorDataset) else None
    if columns is None:
        columns = [held[name] for name in ("indices", *_NAMES) if name in held][:2]
    found = _fingerprint(columns, 100)
    return found.order if found is not None else ""


def digest(tensor: torch.Tensor) -> str:
    """Of all bytes of a tensor on the CPU."""
    memory = _memory(tensor)
    return hashlib.blake2b(memory, digest_size=8).hexdigest() if memory is not None else ""


def _of_attributes(held: dict[str, Any], samples: int | None) -> Rows | None:
    columns: list[Any] = []
    length = -1
    texts = [name for name, column in held.items() if name not in _NAMES and samples and _is_texts(column, samples)]
    for name in (*_NAMES, *texts):
        column = held.get(name)
        if type(column) not in (list, tuple, range, torch.Tensor) and not _is_array(column):
            continue
        rows = _length(column)
        if rows > 0 and length in (-1, rows) and len(columns) < 3 and _fingerprint([column], 4) is not None:
            length = rows
            columns.append(column)
    return _fingerprint(columns) if columns else None


def _fingerprint(columns: Any, most: int = MAX_ROWS) -> Rows | None:
    """Of rows that lie in one or several columns side by side; None where that is unknown."""
    if type(columns) not in (list, tuple) or not columns:
        return None
    hashes: list[int] = []
    length = 0
    try:
        for number, column in enumerate(columns[:_BREADTH]):
            rows = _rows(column, most)
            length = length if number else _length(column)
            hashes = [zlib.crc32(row, before) for row, before in zip(rows, hashes or bytes(most), strict=False)]
    except _NotPlainError:
        return None
    ordered = hashlib.blake2b(array("I", hashes).tobytes(), digest_size=8, key=b"%d" % length).hexdigest()
    distinct = set(hashes)
    whole = length <= most
    varied = len(distinct) * 2 > len(hashes) > 2
    # Of rows that occur again and again (labels, small numbers) common ones show nothing.
    telling = varied and len(distinct) > 0.98 * len(hashes)
    return Rows(
        n=length,
        order=ordered,
        bag=f"{sum(hashes):x}.{sum(h * h for h in hashes):x}" if whole and varied else "",
        sketch=tuple(heapq.nsmallest(SKETCH, distinct)) if telling else (),
        top=max(columns[0], default=0) if whole and _is_plain_indices(columns) else -1,
    )


def _is_plain_indices(columns: Sequence[Any]) -> bool:
    return len(columns) == 1 and type(columns[0]) in (list, tuple, range) and all(type(i) is int for i in columns[0])


def _is_texts(column: Any, rows: int) -> bool:
    """Whether each row is a text, or a tuple with one, such as (path, label)."""
    return type(column) in (list, tuple) and len(column) == rows and all(map(_has_text, column[:MAX_ROWS]))


def _has_text(row: Any) -> bool:
    return type(row) is str or (type(row) in (list, tuple) and any(type(one) is str for one in row[:_BREADTH]))


def _is_array(column: Any) -> bool:
    return type(column).__module__ == "numpy" and type(column).__name__ == "ndarray"


def _length(column: Any) -> int:
    if isinstance(column, torch.Tensor):
        return column.shape[0] if column.dim() else 0
    if _is_array(column):
        return column.shape[0] if column.shape else 0
    return len(column) if type(column) in (list, tuple, range) else 0


def _rows(column: Any, most: int) -> Iterable[bytes | memoryview]:
    if type(column) in (list, tuple, range):
        return [_plain(entry) for entry in column[:most]]
    length = _length(column)
    memory = _memory(column) if length else None
    if memory is None or len(memory) < length:
        raise _NotPlainError
    width = len(memory) // length
    start = max(0, width // 2 - _ROW_BYTES // 2)
    used = min(width, _ROW_BYTES)
    return [memory[at + start : at + start + used] for at in range(0, min(length, most) * width, width)]


def _memory(column: Any) -> memoryview | None:
    """The bytes of a tensor or array, where they lie in one piece in this process's memory."""
    try:
        if _is_array(column):
            return memoryview(column).cast("B") if not column.dtype.hasobject else None
        if type(column) is not torch.Tensor or column.device.type != "cpu" or column.layout is not torch.strided:
            return None
        size, address = column.numel() * column.element_size(), column.data_ptr()
        if not column.is_contiguous() or not size or not address:
            return None
        return memoryview((ctypes.c_char * size).from_address(address)).cast("B")
    except (TypeError, ValueError, RuntimeError, BufferError):
        return None


def _plain(entry: Any, depth: int = 0) -> bytes:
    """A row of a list as bytes that are the same on every rank.

    Of a path the last two names: ranks may have copies in folders of their own.
    """
    kind = type(entry)
    if kind is str:
        return "/".join(entry[-2 * _TEXT :].replace("\\", "/").rsplit("/", 2)[-2:]).encode("utf-8", "replace")
    if kind in (int, float, bool, type(None)):
        return repr(entry).encode()
    if kind is bytes:
        return entry[:_ROW_BYTES]
    if kind in (pathlib.PosixPath, pathlib.WindowsPath):
        return _plain(str(entry))
    if kind is dict and depth < 3:
        entry = [one for pair in list(entry.items())[:8] for one in pair]
        kind = list
    if kind in (list, tuple) and depth < 3:
        return b"|".join([_plain(one, depth + 1) for one in entry[:16]])
    if kind.__module__ == "numpy" and hasattr(kind, "__index__"):
        return repr(operator.index(entry)).encode()
    raise _NotPlainError
