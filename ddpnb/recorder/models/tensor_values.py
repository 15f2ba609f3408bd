"""The values of a tensor in numbers: read in pieces, changing nothing, and without waiting for what a device still has to do.

A piece is as large as torch reduces without waking its pool of threads. A tensor on a GPU is copied by a stream of its own, so
that a collective that hangs on another stream does not block the read; what is read is what lies in the GPU's memory now.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any

import torch

from ddpnb.recorder.models.device_copies import brought, fetched
from ddpnb.recorder.models.tensor_paths import NotFound, contents
from ddpnb.recorder.stacks.values import is_readable
from ddpnb.recording.tensors import LOOKED_AT, PIECE

_OWN = frozenset(map(id, torch.Tensor.__mro__))
_mro, _vars = type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__


def plain(value: Any, name: str) -> tuple[torch.Tensor, bool, str]:
    """The tensor with the values, whether it requires a gradient, and what it is: of a sharded one, this rank's shard.

    Raises:
        NotFound: it is no tensor, or has no values that can be read.
    """
    kind = type(value)
    if not issubclass(kind, torch.Tensor):
        raise NotFound(f"{name} is no tensor: it is of the class {_named(kind)}. world.evaluate() shows any value.")
    part = ""
    local = contents(value).get("_local_tensor", _slot(value, "_local_tensor"))
    if isinstance(local, torch.Tensor):
        value, part, kind = local, "this rank's shard", type(local)
    if any("__torch_dispatch__" in _vars(base) for base in _mro(kind) if id(base) not in _OWN):
        raise NotFound(f"{name} is a tensor of the class {_named(kind)}, which computes its values by own code.")
    with torch._C.DisableTorchFunctionSubclass():
        tensor, trains = torch.Tensor.detach(value), bool(value.requires_grad)
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        raise NotFound(f"{name} is sparse, nested or quantized: only the values of dense tensors are read.")
    if tensor.is_meta:
        raise NotFound(f"{name} is on the device meta and has no values.")
    if tensor.numel() and not is_readable(tensor, anywhere=True):
        raise NotFound(f"{name} has no memory now: its values were freed, as FSDP does between its uses.")
    return tensor, trains, part


def _named(kind: type) -> str:
    return str(type.__dict__["__qualname__"].__get__(kind))[:80]


def _slot(value: Any, name: str) -> Any:
    """What a slot holds: ``contents`` shows only attributes in a dict."""
    for base in _mro(type(value)):
        found = _vars(base).get(name)
        if found is not None and type(found).__name__ == "member_descriptor":
            return found.__get__(value)
    return None


class Reading:
    """Reads a dense tensor piece by piece.

    Args:
        tensor: of ``plain``.
        end: when to give up, on the monotonic clock.
    """

    def __init__(self, tensor: torch.Tensor, end: float) -> None:
        self._end = end
        with torch.no_grad():
            tensor = tensor.resolve_conj().resolve_neg() if tensor.device.type == "cpu" else tensor
            try:
                self._tensor = tensor if tensor.is_contiguous() or tensor.device.type == "cpu" else brought(tensor)
            except ValueError as error:
                raise NotFound(str(error)) from None
            if self._tensor.is_complex():  # two elements each: the real part and the imaginary one
                self._tensor = torch.view_as_real(self._tensor.resolve_conj())
        self.shape = tuple(self._tensor.shape)
        self.elements = self._tensor.numel()
        pieces = -(-self.elements // PIECE)
        every = max(1, -(-self.elements // LOOKED_AT))
        #: the pieces that are read, of a large tensor evenly over it
        self.pieces = range(0, pieces, every)

    def piece(self, number: int) -> torch.Tensor:
        """The elements of one piece, on the CPU, in a row.

        Raises:
            TimeoutError: the time is over.
        """
        if time.monotonic() > self._end:
            raise TimeoutError
        first, end = number * PIECE, min((number + 1) * PIECE, self.elements)
        tensor = self._tensor
        with torch.no_grad():
            if not tensor.is_contiguous() and tensor.dim() > 1:  # copy no more than the rows that are wanted
                row = self.elements // tensor.shape[0]
                before = first // row
                tensor = tensor[before : -(-end // row)]
                first, end = first - before * row, end - before * row
            flat = tensor.reshape(-1)[first:end]
            return flat.contiguous() if flat.device.type == "cpu" else fetched(flat)

    def facts(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The values in numbers, and a digest of each piece that was read."""
        seen = nans = infs = zeros = 0
        low, high, sums, norms = math.inf, -math.inf, list[float](), list[float]()
        digests: list[str] = []
        for number in self.pieces:
            raw = self.piece(number)
            digests.append(_digest(raw))
            piece = raw.to(torch.float64)
            finite = piece[torch.isfinite(piece)]
            missing = int(torch.isnan(piece).sum())
            seen, nans = seen + piece.numel(), nans + missing
            infs += piece.numel() - finite.numel() - missing
            if finite.numel():
                zeros += int((finite == 0).sum())
                low, high = min(low, float(finite.min())), max(high, float(finite.max()))
                sums.append(float(finite.sum()))
                norms.append(float(finite.norm()))
        finite_count = seen - nans - infs
        known = finite_count > 0
        facts = {
            "looked_at": seen,
            "low": low if known else None,
            "high": high if known else None,
            "mean": math.fsum(sums) / finite_count if known else None,
            "norm": math.hypot(*norms) if known else None,
            "nans": nans,
            "infs": infs,
            "zeros": zeros,
        }
        return facts, tuple(digests)

    def counts(self, low: float, high: float, bins: int) -> list[int]:
        """How many finite elements are in each of so many bins between two values."""
        total = torch.zeros(bins, dtype=torch.float64)
        for number in self.pieces:
            piece = self.piece(number).to(torch.float64)
            finite = piece[torch.isfinite(piece)]
            if high > low:
                total += torch.histc(finite, bins, low, high)
            else:
                total[bins // 2] += int((finite == low).sum())
        return [int(count) for count in total.tolist()]

    def values(self, numbers: Iterable[int]) -> Iterator[tuple[str, bytes]]:
        """The elements of these pieces, exactly: the type code of ``array``, and the bytes."""
        for number in numbers:
            if number in self.pieces:
                piece = self.piece(number)
                code, kind = _code(piece.dtype)
                yield code, _bytes(piece.to(kind))


def _code(dtype: torch.dtype) -> tuple[str, torch.dtype]:
    if not dtype.is_floating_point:
        return "q", torch.int64
    return ("d", torch.float64) if dtype is torch.float64 else ("f", torch.float32)


def _bytes(piece: torch.Tensor) -> bytes:
    piece = piece.contiguous()
    return ctypes.string_at(piece.data_ptr(), piece.numel() * piece.itemsize)


def _digest(piece: torch.Tensor) -> str:
    return blake2b(_bytes(piece), digest_size=8).hexdigest()
