"""Digests of tensors: exact, cheap, and the same on every rank that holds the same bytes.

XXH3 over the bytes as they lie in memory, of one part of a tensor after the other
(https://github.com/Cyan4973/xxHash): two that differ have the same 32 bits of it in one case of four
billion. How a tensor is laid out makes no difference: what lies in pieces is copied first.

An environment that has torch alone has neither xxhash nor numpy. Then the standard library computes the digests, which
are others than those of XXH3 (``HASH`` says which: only digests of one kind are compared), and torch the norms.

From another device the bytes are fetched, which waits for that device: it is for the caller to do so
rarely.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch

from ddpnb.recorder.stacks.user_frames import is_user_file
from ddpnb.recording.samples import first_of, units_of

np: Any = None
try:
    import numpy as np
except ImportError:  # torch runs without it
    pass

# Types whose elements are whole bytes.
_WHOLE = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
_WHOLE += ("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128")
_WHOLE += ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
_BY_NAME: dict[str, torch.dtype] = {name: d for name in _WHOLE if (d := getattr(torch, name, None)) is not None}
_DTYPES = frozenset(_BY_NAME.values())
_OF_WIDTH = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64", 16: "complex128"}
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_WORD = 0xFFFFFFFF
_ALONE = 8192  # elements: numpy's library starts threads for more
_quiet: Callable[[], Any] = nullcontext if np is None else partial(np.errstate, over="ignore", invalid="ignore")


def _xxh3() -> Callable[[Any], int] | None:
    """XXH3, if it is installed. A module of the user's with that name is not imported."""
    try:
        spec = find_spec("xxhash")
        if spec is None or spec.origin is None or is_user_file(spec.origin):
            return None
        from xxhash import xxh3_64_intdigest
    except (ImportError, ValueError):
        return None
    return xxh3_64_intdigest


def _of_whole(data: Any) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


_xxh3_64 = _xxh3()
HASH = "crc32" if _xxh3_64 is None else "xxh3"
_hash_part: Callable[[Any], int] = _xxh3_64 or zlib.crc32  # the lowest 32 bits count
_hash_whole: Callable[[Any], int] = _xxh3_64 or _of_whole  # 64 bits


class Digester:
    """Digests of a fixed list of tensors' parts, in slices.

    Args:
        specs: the tensors (``TensorSpec``), which say how they are cut into parts.
    """

    def __init__(self, specs: Sequence[Any]) -> None:
        self._units = units_of(specs)
        self._specs = [(_BY_NAME.get(spec.dtype), tuple(spec.shape), math.prod(spec.shape)) for spec in specs]
        self._memories: list[tuple[int, Any]] = [(0, None)] * len(specs)

    def parts_of(self, tensors: int) -> int:
        """How many parts the first ``tensors`` tensors have."""
        return bisect_left(self._units, (tensors,))

    def digest(self, tensors: Sequence[torch.Tensor | None], log2: int, step: int) -> tuple[bytes, bytes]:
        """Hashes (32-bit words) and norms (floats; NaN: unknown) of the slice that belongs to ``step``.

        Every ``2 ** log2``-th part is digested (``model.samples.first_of``). A tensor that is None or has
        another size than its spec has the hash 0, and so have those whose bytes are not their own
        (sparse, meta, sharded).
        """
        hashes, norms = array("I"), array("f")
        last = -1
        tensor: Any = None
        memory: Any = None
        with torch.no_grad(), _quiet():
            for number in range(first_of(step, log2), self.parts_of(len(tensors)), 1 << log2):
                index, first, end = self._units[number]
                if index != last:
                    last, tensor = index, tensors[index]
                    memory = self._memory(index, tensor)
                if memory is not None:
                    data = memory[first:end]
                    norm = _norm(data) if data.dtype == np.float32 else math.nan  # that of other types is expensive
                elif self._usable(index, tensor):
                    part = _part(tensor, first, end)
                    data = _array(part)
                    norm = _norm_of(part, data) if tensor.dtype is torch.float32 else math.nan
                else:
                    hashes.append(0)
                    norms.append(math.nan)
                    continue
                hashes.append(_hash_part(data) & _WORD)
                norms.append(norm)
        return hashes.tobytes(), norms.tobytes()

    def _usable(self, index: int, tensor: Any) -> bool:
        dtype, shape, _ = self._specs[index]
        return tensor is not None and _plain(tensor) and tensor.dtype is dtype and tensor.shape == shape

    def _memory(self, index: int, tensor: Any) -> Any:
        """All of a tensor that lies in one piece in this process, as an array; None for others.

        It does not keep the tensor alive, and is kept for the next time, when the tensor is found at the same place.
        """
        dtype, _, elements = self._specs[index]
        if (
            np is None
            or type(tensor) not in _PLAIN
            or not tensor.is_cpu
            or tensor.layout is not torch.strided
            or not tensor.is_contiguous()
            or tensor.dtype is not dtype
            or tensor.numel() != elements
        ):
            return None
        address = tensor.data_ptr()
        known, memory = self._memories[index]
        if known != address:
            if not self._usable(index, tensor) or tensor.is_neg() or tensor.is_conj():
                return None
            memory = np.frombuffer((ctypes.c_char * (elements * tensor.itemsize)).from_address(address), _kind(dtype))
            self._memories[index] = address, memory
        return memory


def _kind(dtype: Any) -> Any:
    """What numpy is to take the elements for: only of float32 the numbers matter, of others the bytes."""
    return "float32" if dtype is torch.float32 else _OF_WIDTH[dtype.itemsize]


def _norm_of(part: torch.Tensor, data: Any) -> float:
    return _norm(data) if np is not None else float(torch.linalg.vector_norm(part.double()))


def _norm(numbers: Any) -> float:
    total = 0.0
    for first in range(0, len(numbers), _ALONE):
        part = numbers[first : first + _ALONE]
        total += float(part.dot(part))
    return math.sqrt(total)


def _part(tensor: torch.Tensor, first: int, end: int) -> torch.Tensor:
    if not tensor.is_contiguous() and tensor.dim() > 1:  # copy no more than the rows that are wanted
        row = tensor.numel() // tensor.shape[0]
        before = first // row
        tensor = tensor[before : -(-end // row)]
        first, end = first - before * row, end - before * row
    return tensor.detach().contiguous().view(-1)[first:end]


def _plain(tensor: torch.Tensor) -> bool:
    """Whether the tensor's bytes are its own: sparse, meta and sharded ones are not looked at."""
    return (
        type(tensor) in _PLAIN
        and tensor.layout is torch.strided
        and not tensor.is_meta
        and tensor.dtype in _DTYPES
        and not tensor.is_nested
        and tensor.numel() > 0
    )


def _array(flat: torch.Tensor) -> Any:
    """The elements of a tensor of one dimension that lies in one piece, fetched if they are elsewhere."""
    if flat.is_conj() or flat.is_neg():  # lazy bytes
        flat = flat.resolve_conj().resolve_neg()
    flat = flat.detach().cpu()
    if np is not None:
        return flat.view(torch.uint8).numpy().view(_kind(flat.dtype))
    memory: Any = (ctypes.c_char * (flat.numel() * flat.itemsize)).from_address(flat.data_ptr())
    memory.tensor = flat  # lives as long as what shows its bytes
    return memory


def exact(tensor: torch.Tensor) -> int:
    """The digest of all of a tensor, 64 bits: reads it once, at about the speed of memory. 0: it has no bytes."""
    if not _plain(tensor):
        return 0
    with torch.no_grad():
        return _hash_whole(_array(tensor.detach().contiguous().view(-1)))
