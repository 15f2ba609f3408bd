"""What a call is, read from the arguments of each ``c10d::`` operator.

The schemas are those of torch 2.14 (``torch.ops.c10d.<op>.default._schema``); an operator that is
not in the table is passed through unseen.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ddpnb.recorder.collectives.callers import REDUCE_OPS
from ddpnb.recording.calls import UNKNOWN_REDUCTION, Signature
from ddpnb.recording.codec import JSON


@dataclass(frozen=True)
class OpSpec:
    """Where an operator keeps what matters. Positions are indices of its arguments.

    ``same``: what all ranks must give alike: ``"elements"`` (counts and types), ``"dtype"`` or
    ``"nothing"``.
    """

    name: str
    group: int
    tensors: int | None = 0
    reduce_op: int | None = None
    root: int | None = None
    same: str = "elements"
    peer: int | None = None
    tag: int | None = None
    outputs: int | None = None  # where the sizes that ranks exchange are those of pairs: the tensors that are received
    splits: tuple[int, int] | None = None  # positions of output and input splits

    @property
    def p2p(self) -> bool:
        return self.name in ("send", "recv", "recv_any_source")


OPS: dict[str, OpSpec] = {
    "allreduce_": OpSpec("all_reduce", 1, reduce_op=2),
    "allreduce_coalesced_": OpSpec("all_reduce_coalesced", 1, reduce_op=2),
    "broadcast_": OpSpec("broadcast", 1, root=2),
    "reduce_": OpSpec("reduce", 1, reduce_op=2, root=3),
    "allgather_": OpSpec("all_gather", 2, tensors=1),
    "_allgather_base_": OpSpec("all_gather_into_tensor", 2, tensors=1),
    "allgather_coalesced_": OpSpec("all_gather_coalesced", 2, tensors=1),
    "allgather_into_tensor_coalesced_": OpSpec("all_gather_into_tensor_coalesced", 2, tensors=1),
    "gather_": OpSpec("gather", 2, tensors=1, root=3),
    "gather_into_tensor_": OpSpec("gather_into_tensor", 2, tensors=1, root=3),  # torch 2.14 and later
    "scatter_": OpSpec("scatter", 2, tensors=0, root=3),
    "reduce_scatter_": OpSpec("reduce_scatter", 2, reduce_op=3),
    "_reduce_scatter_base_": OpSpec("reduce_scatter_tensor", 2, reduce_op=3),
    "reduce_scatter_tensor_coalesced_": OpSpec("reduce_scatter_tensor_coalesced", 2, reduce_op=3),
    "alltoall_": OpSpec("all_to_all", 2, tensors=1, same="dtype", outputs=0),
    "alltoall_base_": OpSpec("all_to_all_single", 2, tensors=1, same="dtype", outputs=0, splits=(3, 4)),
    "barrier": OpSpec("barrier", 1, tensors=None),
    "monitored_barrier_": OpSpec("monitored_barrier", 1, tensors=None),
    "send": OpSpec("send", 1, same="nothing", peer=2, tag=3),
    "recv_": OpSpec("recv", 1, same="nothing", peer=2, tag=3),
    "recv_any_source_": OpSpec("recv_any_source", 1, same="nothing", tag=2),
}

# NCCL turns an uneven all_gather into broadcasts: legal there, so only types must agree.
_UNEVEN_ON_CUDA = frozenset({"all_gather", "reduce_scatter"})


#: Of a reduction that is not known, and of a call that is none.
UNKNOWN = -1
#: What the fence does not compare: the hash of a call whose reduction is not known.
NOT_COMPARED = -1

# A signature as the door needs it: its string in the box, the hash that the fence compares, whether all its tensors
# lie on the CPU, and the signature itself where the fence compares sizes of pairs of ranks.
Interned = tuple[int, int, bool, Signature | None]
#: from the tensors, the reduction, the root and what is exchanged
Reader = Callable[[Sequence[torch.Tensor], int | None, int | None, "_Exchanged | None"], Interned]


class Signatures:
    """Turns calls into interned signatures; a signature seen before costs one look-up."""

    def __init__(self, intern: Callable[[dict[str, Any]], int]) -> None:
        self._intern = intern
        self._known: list[dict[Any, Interned]] = []  # of each reader

    def forget(self) -> None:
        """The table of strings has begun again: describe every signature again."""
        for known in self._known:
            known.clear()

    def reader(self, spec: OpSpec) -> Reader:
        """A function from what a call of ``spec``'s operator is given to the signature. It is on the hot path."""
        known: dict[Any, Interned] = {}
        self._known.append(known)
        describe = self._describe

        def read(
            tensors: Sequence[torch.Tensor], reduce_op: int | None, root: int | None, exchanged: _Exchanged | None
        ) -> Interned:
            key: Any = None
            if len(tensors) == 1:
                only = tensors[0]
                try:
                    if only.is_contiguous():
                        key = (only.shape, only.dtype, only.is_cpu or only.device, reduce_op, root, exchanged)
                except RuntimeError:  # it has no strides, or no shape
                    pass
            if key is None:
                key = (tuple((_shape(t), t.dtype, t.device, _layout(t)) for t in tensors), reduce_op, root, exchanged)
            signature = known.get(key)
            if signature is None:
                signature = describe(spec, tensors, reduce_op, root, exchanged)
                if len(known) < 10_000:
                    known[key] = signature
            return signature

        return read

    def _describe(
        self,
        spec: OpSpec,
        tensors: Sequence[torch.Tensor],
        reduce_op: int | None,
        root: int | None,
        exchanged: _Exchanged | None,
    ) -> Interned:
        devices = {tensor.device.type for tensor in tensors}
        dtypes = [str(tensor.dtype).removeprefix("torch.") for tensor in tensors[:64]]
        layouts = {_layout(tensor) for tensor in tensors}
        same = "dtype" if spec.name in _UNEVEN_ON_CUDA and "cuda" in devices else spec.same
        agreed = [spec.name]
        if same == "elements":
            agreed += [f"{t.numel()} {t.dtype} {_layout(t)}" for t in tensors]
        elif same == "dtype":
            agreed += sorted({str(tensor.dtype) for tensor in tensors})
        reduction = None
        if reduce_op == UNKNOWN:
            agreed.append(UNKNOWN_REDUCTION)
        elif reduce_op is not None:
            reduction = REDUCE_OPS[reduce_op] if 0 <= reduce_op < len(REDUCE_OPS) else f"op {reduce_op}"
            agreed.append(reduction)
        if root is not None:
            agreed.append(f"root {root}")
        text = "|".join(agreed)
        value: dict[str, Any] = {
            "op": spec.name,
            "shapes": [list(_shape(tensor)) for tensor in tensors[:64]],
            "dtypes": dtypes,
            "agreed": text if len(text) < 400 else f"{text[:300]}|{zlib.crc32(text.encode())}",
            "device": tensors[0].device.type if len(tensors) else "cpu",
        }
        if reduction is not None:
            value["reduce_op"] = reduction
        if root is not None:
            value["root"] = root
        if layouts - {""}:
            value["layout"] = " ".join(sorted(layouts - {""}))
        pairs = None
        if exchanged is not None:
            outputs, splits = exchanged
            value["out_shapes"] = [list(shape) for shape in outputs[:64]]
            if splits is not None:
                value["out_splits"], value["in_splits"] = map(list, splits)
            if all(type(size) is int for shape in (*value["shapes"], *value["out_shapes"]) for size in shape):
                pairs = JSON.read(Signature, value)  # not while the program is compiled for any size
        compared = NOT_COMPARED if reduce_op == UNKNOWN else zlib.crc32(text.encode())
        return self._intern(value), compared, devices <= {"cpu"}, pairs


# The shapes of the tensors that are received, and the splits of what is received and sent.
_Exchanged = tuple[tuple[torch.Size, ...], tuple[tuple[int, ...], ...] | None]


def exchanged(spec: OpSpec, args: Sequence[Any]) -> _Exchanged:
    outputs = args[spec.outputs or 0]
    shapes = (outputs.shape,) if isinstance(outputs, torch.Tensor) else tuple(output.shape for output in outputs)
    return shapes, None if spec.splits is None else tuple(tuple(args[place]) for place in spec.splits)


def _shape(tensor: torch.Tensor) -> Sequence[int]:
    """A nested tensor has none that is made of numbers."""
    return () if tensor.is_nested else tensor.shape


def _layout(tensor: torch.Tensor) -> str:
    """Empty for the ordinary layout; elements of other layouts meet in another order. Only the ordinary one has strides."""
    if tensor.is_sparse:
        return "sparse"
    if tensor.is_nested:
        return "nested"
    if tensor.layout is not torch.strided:
        return str(tensor.layout).removeprefix("torch.")
    return "" if tensor.is_contiguous() else f"strides {list(tensor.stride())}"
