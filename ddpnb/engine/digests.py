"""Digests of tensors: exact, cheap, and the same on every rank that holds the same bytes.

A tensor's bytes are read as 32-bit words, each multiplied by an odd weight that depends on its
place, and added up without carry: a change within one word always changes the sum, and other changes
leave it as it was no more often than chance does. What is in the highest bits of a word counts
little in such a sum (two changed signs would cancel each other), so the halves of a word are mixed
or exchanged first. All of it is integer arithmetic: the order of additions and the number of threads
do not matter.

This is numpy, on the tensors' own memory where it can be. From another device the bytes are fetched,
which waits for that device: it is for the caller to do so rarely.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ddpnb.model.samples import CHUNK_WORDS, units_of


def _make_weights(count: int) -> Any:
    """Odd numbers without order: a progression would let regular changes cancel each other."""
    numbers = np.arange(1, count + 1, dtype=np.uint32)
    for multiplier, shift in ((2654435761, 15), (2246822519, 13), (3266489917, 16)):
        numbers *= np.uint32(multiplier)
        numbers ^= numbers >> np.uint32(shift)
    return numbers | np.uint32(1)


_WEIGHTS = _make_weights(4 * CHUNK_WORDS)
# Types whose elements are whole bytes: bytes of an element, by type.
_WHOLE = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
_WHOLE += ("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128")
_WHOLE += ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
_SIZES: dict[torch.dtype, int] = {d: d.itemsize for name in _WHOLE if (d := getattr(torch, name, None)) is not None}
_NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in _SIZES}
_BY_NAME = {name: _SIZES[dtype] for dtype, name in _NAMES.items()}
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
        that is None or has another size than its spec has the hash 0, and so have those whose bytes
        are not their own (sparse, meta, sharded).
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
            if self._specs[index].device == "meta":
                continue
            by_type.setdefault(self._specs[index].dtype, []).append(place)
        for dtype, places in by_type.items():
            width = _BY_NAME.get(dtype)
            if width is None:
                continue
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
        mixed = words >> _HALF
        mixed ^= words
        mixed *= weights
        hashes[places] = np.add.reduceat(mixed, offsets, dtype=np.uint32)
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
        good = _plain(flat) and _NAMES[flat.dtype] == batch.dtype and flat.numel() == batch.elements
        return flat if good else None

    def _usable(self, unit: tuple[int, int, int], tensors: Sequence[torch.Tensor | None]) -> bool:
        tensor, spec = tensors[unit[0]], self._specs[unit[0]]
        return (
            tensor is not None
            and _plain(tensor)
            and _NAMES[tensor.dtype] == spec.dtype
            and tuple(tensor.shape) == tuple(spec.shape)
        )


def _part(tensors: Sequence[torch.Tensor | None], unit: tuple[int, int, int]) -> Any:
    index, first, end = unit
    tensor = tensors[index]
    if tensor is None or not _plain(tensor):
        return None
    if not tensor.is_contiguous() and tensor.dim() > 1:  # copy no more than the rows that are wanted
        row = tensor.numel() // tensor.shape[0]
        before = first // row
        tensor = tensor[before : -(-end // row)]
        first, end = first - before * row, end - before * row
    return _flat_view(tensor)[first:end]


def _plain(tensor: torch.Tensor) -> bool:
    """Whether the tensor's bytes are its own: sparse, meta and sharded ones are not looked at."""
    return (
        type(tensor) in _PLAIN
        and tensor.layout is torch.strided
        and tensor.device.type != "meta"
        and tensor.dtype in _SIZES
        and not tensor.is_nested
        and tensor.numel() > 0
    )


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _flat_view(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().view(-1)  # a copy only of what lies in pieces


def _words(flat: torch.Tensor, width: int) -> Any:
    """The bytes as unsigned words: of 4 bytes, or one word for each narrower element."""
    array = _numbers(flat, width)
    return array if width >= 4 else array.astype(np.uint32)


def _numbers(flat: torch.Tensor, width: int) -> Any:
    """The bytes as unsigned numbers: words of 4 bytes, or the elements where they are narrower."""
    if flat.is_conj() or flat.is_neg():  # bytes that are yet to be made
        flat = flat.resolve_conj().resolve_neg()
    if width == 16:
        flat = torch.view_as_real(flat).view(-1)
        width = 8
    array = flat.detach().view(_INTEGERS[width]).numpy()
    return array.view(_UNSIGNED[width])


_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint32}
_HALF = np.uint32(16)


def exact(tensor: torch.Tensor) -> int:
    """The digest of all of a tensor, part by part: reads it once, at about the speed of memory."""
    if not _plain(tensor):
        return 0
    width = _SIZES[tensor.dtype]
    with torch.no_grad():
        flat = _flat_view(tensor)
        if flat.device.type != "cpu":
            flat = flat.cpu()
        numbers = _numbers(flat, width)
    total = 0
    scratch = np.empty(min(len(numbers), _BLOCK), np.uint32)  # two threads may be here at once
    halves = scratch.view(np.uint16)
    for number, first in enumerate(range(0, len(numbers), _BLOCK)):
        part = numbers[first : first + _BLOCK]
        words = scratch[: len(part)]
        if width < 4:
            words[:] = part
        else:  # beginning in the middle of a word: what was in the highest bits is no longer there
            of_part = part.view(np.uint16)
            halves[: 2 * len(part) - 1] = of_part[1:]
            halves[2 * len(part) - 1] = of_part[0]
        words *= _WEIGHTS[: len(part)]
        total = (total * 31 + int(np.add.reduce(words, dtype=np.uint32)) + number) & 0xFFFFFFFFFFFFFFFF
    return total


_BLOCK = 4 * CHUNK_WORDS  # 256 KiB, and as much for the weights: the products stay in the cache
