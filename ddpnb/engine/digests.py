"""Digests of tensors: exact, cheap, and the same on every rank that holds the same bytes.

A tensor's bytes are read as 32-bit words, each multiplied by an odd weight that depends on its
place, and added up without carry: one changed bit always changes the sum, and exchanged words do
too. All of it is integer arithmetic: the order of additions and the number of threads do not matter.

On the CPU this is numpy on the tensors' own memory. On another device torch does the same there;
the result is fetched later, so that nothing waits for the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ddpnb.model.samples import CHUNK_WORDS, units_of, width_of

_WEIGHTS = (np.arange(4 * CHUNK_WORDS, dtype=np.uint32) * np.uint32(2654435761)) | np.uint32(1)
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_flatten: Any = torch._C._nn.flatten_dense_tensors  # pyright: ignore[reportAttributeAccessIssue]


@dataclass(frozen=True)
class _Batch:
    """Parts of tensors of one type: their places among those asked for, and where each begins."""

    units: tuple[tuple[int, int, int], ...]  # tensor, first element, end
    places: Any  # numpy array: where the results belong
    offsets: Any  # in words
    weights: Any
    whole: tuple[bool, ...]  # whether a part is all of its tensor
    elements: int
    dtype: str
    width: int

    @property
    def floats(self) -> bool:
        return self.dtype == "float32"  # the norm is cheap


class Digester:
    """Digests of a fixed list of tensors' parts, in slices.

    Args:
        specs: the tensors (``TensorSpec``), which say how they are cut into parts.
    """

    def __init__(self, specs: Sequence[Any]) -> None:
        self._specs = specs
        self._units = units_of(specs)
        self._plans: dict[tuple[int, int, int], list[_Batch]] = {}

    def parts_of(self, tensors: int) -> int:
        """How many parts the first ``tensors`` tensors have."""
        return sum(1 for index, _, _ in self._units if index < tensors)

    def digest(self, tensors: Sequence[torch.Tensor | None], log2: int, step: int) -> tuple[bytes, bytes]:
        """Hashes (32-bit words) and norms (floats; NaN: unknown) of the slice that belongs to ``step``.

        Every ``2 ** log2``-th part is digested, beginning with number ``step`` modulo that. A tensor
        that is None or of another shape than its spec has the hash 0.
        """
        count = self.parts_of(len(tensors))
        start = step % (1 << log2)
        key = (count, log2, start)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) > 256:
                self._plans.clear()
            plan = self._plans[key] = self._plan(self._units[:count][start :: 1 << log2])
        size = len(range(start, count, 1 << log2))
        hashes = np.zeros(size, np.uint32)
        norms = np.full(size, np.nan, np.float32)
        with torch.no_grad():
            for batch in plan:
                self._run(batch, tensors, hashes, norms)
        return hashes.tobytes(), norms.tobytes()

    def _plan(self, units: Sequence[tuple[int, int, int]]) -> list[_Batch]:
        batches = []
        by_type: dict[str, list[int]] = {}
        for place, (index, _, _) in enumerate(units):
            by_type.setdefault(self._specs[index].dtype, []).append(place)
        for dtype, places in by_type.items():
            width = width_of(dtype)
            chosen = tuple(units[place] for place in places)
            per = max(1, width // 4)  # words of an element; elements of one or two bytes are words too
            sizes = [(end - first) * per for _, first, end in chosen]
            offsets = np.cumsum([0, *sizes[:-1]])
            weights = np.concatenate([_WEIGHTS[:size] for size in sizes]) if sizes else _WEIGHTS[:0]
            batches.append(
                _Batch(
                    chosen,
                    np.asarray(places),
                    offsets,
                    weights,
                    tuple(first == 0 and end == math.prod(self._specs[i].shape) for i, first, end in chosen),
                    sum(end - first for _, first, end in chosen),
                    dtype,
                    width,
                )
            )
        return batches

    def _run(self, batch: _Batch, tensors: Sequence[torch.Tensor | None], hashes: Any, norms: Any) -> None:
        offsets, weights, places = batch.offsets, batch.weights, batch.places
        flat = self._flat(batch, tensors)
        if flat is None:  # some are missing, or not what they were: look at each
            usable = [number for number, unit in enumerate(batch.units) if self._usable(unit, tensors)]
            if not usable:
                return
            sizes = [(batch.units[n][2] - batch.units[n][1]) * max(1, batch.width // 4) for n in usable]
            offsets = np.cumsum([0, *sizes[:-1]])
            weights = np.concatenate([_WEIGHTS[:size] for size in sizes])
            places = batch.places[usable]
            flat = torch.cat([_part(tensors, batch.units[n]) for n in usable])
        if flat.device.type != "cpu":
            flat = flat.cpu()
        words = _words(flat, batch.width)
        hashes[places] = np.add.reduceat(words * weights, offsets, dtype=np.uint32)
        if batch.floats:
            numbers = words.view(np.float32)
            with np.errstate(all="ignore"):
                norms[places] = np.sqrt(np.add.reduceat(numbers * numbers, offsets))

    def _flat(self, batch: _Batch, tensors: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
        """All parts in one piece, at once; None when they are not all there as the specs say."""
        pieces = [
            tensors[index] if whole else _part(tensors, (index, first, end))
            for (index, first, end), whole in zip(batch.units, batch.whole, strict=True)
        ]
        try:
            flat = _flatten(pieces)
        except (TypeError, RuntimeError, NotImplementedError):
            return None
        good = _name(flat) == batch.dtype and flat.numel() == batch.elements and _plain(flat)
        return flat if good else None

    def _usable(self, unit: tuple[int, int, int], tensors: Sequence[torch.Tensor | None]) -> bool:
        tensor, spec = tensors[unit[0]], self._specs[unit[0]]
        return tensor is not None and tensor.shape == spec.shape and _name(tensor) == spec.dtype and _plain(tensor)


def _part(tensors: Sequence[torch.Tensor | None], unit: tuple[int, int, int]) -> Any:
    tensor = tensors[unit[0]]
    return None if tensor is None or not _plain(tensor) else _in_memory_order(tensor)[unit[1] : unit[2]]


def _name(tensor: torch.Tensor) -> str:
    return _NAMES.get(tensor.dtype) or _NAMES.setdefault(tensor.dtype, str(tensor.dtype).removeprefix("torch."))


_NAMES: dict[torch.dtype, str] = {}


def _plain(tensor: torch.Tensor) -> bool:
    """Whether the tensor's bytes are its own: sparse, meta and sharded ones are not looked at."""
    return (
        tensor.layout is torch.strided
        and tensor.device.type != "meta"
        and type(tensor) in _PLAIN
        and tensor.numel() > 0
    )


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().view(-1) if tensor.is_contiguous() else tensor.detach().reshape(-1)


def _words(flat: torch.Tensor, width: int) -> Any:
    """The bytes as unsigned words: of 4 bytes, or one word for each narrower element."""
    if width == 16:
        flat = torch.view_as_real(flat).view(-1)
        width = 8
    array = flat.detach().view(_INTEGERS[width]).numpy()
    if width == 8:
        return array.view(np.uint32)
    return array.view(np.uint32) if width == 4 else array.astype(np.uint32)


def exact(tensor: torch.Tensor) -> int:
    """The digest of all of a tensor, part by part: reads it once, at about the speed of memory."""
    if not _plain(tensor):
        return 0
    with torch.no_grad():
        flat = _in_memory_order(tensor)
        if flat.device.type != "cpu":
            flat = flat.cpu()
        words = _words(flat, width_of(_name(tensor)))
    total = 0
    for number, first in enumerate(range(0, len(words), _BLOCK)):
        part = words[first : first + _BLOCK]
        product = np.multiply(part, _WEIGHTS[: len(part)], out=_scratch[: len(part)])
        total = (total * 31 + int(np.add.reduce(product, dtype=np.uint32)) + number) & 0xFFFFFFFFFFFFFFFF
    return total


_BLOCK = 2 * CHUNK_WORDS  # 128 KiB: the product stays in the cache
_scratch = np.empty(_BLOCK, np.uint32)
