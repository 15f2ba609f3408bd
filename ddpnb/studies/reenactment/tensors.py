"""Small tensors and known operations in place of the recorded ones: equal stays equal, different stays different."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddpnb.recording import calls
from ddpnb.recording.calls import Call, Signature
from ddpnb.studies.reenactment.behaviour import Made

#: what gloo moves; those that stand for other types come last
_KNOWN = ("float32", "float64", "bfloat16", "bool", "int64", "int32", "float16", "int8", "uint8")
_REDUCE_OPS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")
_STAND_INS = {
    "all_reduce_coalesced": "all_reduce",
    "all_gather_coalesced": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather_into_tensor",
    "gather_into_tensor": "gather",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor",
}
#: those that are called
OPERATIONS = calls.OPERATIONS - _STAND_INS.keys()
_LARGE = 1024  # elements; larger tensors are made smaller
_SPLIT = 16  # elements; the same for one part of an all_to_all_single
_EAGER = 4_000_000  # elements: gloo completes a smaller send before anybody receives it
_ONLY_DTYPE = frozenset({"all_to_all", "all_to_all_single"})


@dataclass(frozen=True, slots=True)
class Tensor:
    """One that a call takes, contiguous or not."""

    elements: int = 4
    dtype: str = "float32"
    turned: bool = False  # not contiguous


@dataclass(frozen=True, slots=True)
class Small:
    """What a call is given in the re-enactment."""

    op: str
    tensor: Tensor = Tensor()
    reduce_op: str = "sum"
    root: int | None = None  # in the recording, its place in the group
    in_splits: tuple[int, ...] = ()
    out_splits: tuple[int, ...] = ()


class Scale:
    """The same small tensors for the same recorded ones, over all calls of a re-enactment.

    Args:
        made: all calls that are re-enacted.
    """

    def __init__(self, made: Sequence[Made]) -> None:
        self.notes: list[str] = []
        self._dtypes = self._stand_ins({dtype for one in made for dtype in one.call.signature.dtypes})
        large = {count for one in made for count in one.call.signature.elements if count > _LARGE}
        self._elements = {count: _LARGE + 8 * place for place, count in enumerate(sorted(large), 1)}
        parts = {
            count
            for one in made
            for splits in (one.call.signature.in_splits, one.call.signature.out_splits)
            for count in splits or ()
            if count > _SPLIT
        }
        self._parts = {count: _SPLIT + place for place, count in enumerate(sorted(parts), 1)}
        if large:
            self.notes.append("Tensors are smaller than recorded: equal sizes stay equal, different ones different.")

    def _stand_ins(self, dtypes: set[str]) -> dict[str, str]:
        found = {dtype: dtype for dtype in dtypes if dtype in _KNOWN}
        free = [dtype for dtype in reversed(_KNOWN) if dtype not in found]
        for dtype in sorted(dtypes - found.keys()):
            found[dtype] = free.pop(0) if len(free) > 1 else "float32"
            self.notes.append(f"{found[dtype]} stands for {dtype}, which gloo does not move.")
        return found

    def elements(self, count: int) -> int:
        return self._elements.get(count, max(0, count))

    def operation(self, op: str) -> str:
        """The operation that is called."""
        found = op if op in OPERATIONS else _STAND_INS.get(op, "all_reduce")
        if found != op:
            note = f"{found} stands for {op if op != '?' else 'a call whose name is not known'}."
            self.notes += [note] if note not in self.notes else []
        return found

    def small(self, call: Call, members: Sequence[int]) -> Small:
        """What a call is given.

        Args:
            call: the recorded one.
            members: the places in its group of the members that are re-enacted.
        """
        signature = call.signature
        op = self.operation(signature.op)
        reduce_op = signature.reduce_op if signature.reduce_op in _REDUCE_OPS else "sum"
        return Small(
            op,
            self._tensor(signature),
            reduce_op or "sum",
            signature.root,
            self._splits(signature.in_splits, members),
            self._splits(signature.out_splits, members),
        )

    def _tensor(self, signature: Signature) -> Tensor:
        if not signature.shapes:
            return Tensor()
        count = self.elements(
            min(sum(signature.elements), 1 << 50) if len(signature.shapes) == 1 else self._sum(signature)
        )
        dtype = self._dtypes.get(signature.dtypes[0], "float32") if signature.dtypes else "float32"
        return Tensor(count, dtype, bool(signature.layout) and count > 1)

    def _sum(self, signature: Signature) -> int:
        """Of several tensors, which one stands for: all their elements together."""
        return min(sum(map(self.elements, signature.elements)), _LARGE)

    def _splits(self, splits: tuple[int, ...] | None, members: Sequence[int]) -> tuple[int, ...]:
        chosen = [splits[place] for place in members if place < len(splits)] if splits else []
        return tuple(self._parts.get(count, max(0, count)) for count in chosen)


def compared_by_size(op: str) -> bool:
    """Whether all ranks must give tensors of one size."""
    return op not in _ONLY_DTYPE


def eager(tensor: Tensor) -> Tensor:
    """The tensor of a send that waits for its receiver."""
    return Tensor(_EAGER, tensor.dtype)
