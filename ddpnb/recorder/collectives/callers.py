"""What the function that makes a collective call says of it: torch's own hooks give neither its reduction nor, before torch
2.15, which operator it is.

A collective is called by a function of ``torch.distributed``, by an operator of functional collectives, by C++ (the reducer of
DDP, autograd), or by the program itself. The innermost frame of Python tells which; where it tells no more, the answer is None.
"""

from __future__ import annotations

import os
from types import CodeType, FrameType
from typing import Any

import torch
import torch.distributed as dist

from ddpnb.recorder.stacks.user_frames import CodeKinds

REDUCE_OPS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")

#: by the id of a constant of ``ReduceOp``: its place
NUMBERS = {id(getattr(dist.ReduceOp, name.upper())): number for number, name in enumerate(REDUCE_OPS)}
_NAMES = {name: number for number, name in enumerate(REDUCE_OPS)}
_OTHER, _FUNCTION, _TOGETHER, _OPERATOR, _CPP = range(1, 6)
_TORCH = os.path.dirname(torch.__file__)
_FUNCTIONS = os.path.join(_TORCH, "distributed", "distributed_c10d.py")
_OPERATORS = os.path.join(_TORCH, "_ops.py")
# Where Python waits while C++ calls collectives: all of these sum.
_SUMMING = {
    os.path.join(_TORCH, *path)
    for path in (("autograd", "graph.py"), ("autograd", "__init__.py"), ("nn", "parallel", "distributed.py"))
}
_codes = CodeKinds()
_kinds = _codes.by_id

# Functions of torch.distributed that call one operator alone.
_BY_FUNCTION = {
    "all_reduce": "allreduce_",
    "all_reduce_coalesced": "allreduce_coalesced_",
    "broadcast": "broadcast_",
    "reduce": "reduce_",
    "all_gather": "allgather_",
    "all_gather_coalesced": "allgather_coalesced_",
    "all_gather_into_tensor": "_allgather_base_",
    "all_gather_single": "_allgather_base_",
    "gather": "gather_",
    "scatter": "scatter_",
    "reduce_scatter": "reduce_scatter_",
    "reduce_scatter_tensor": "_reduce_scatter_base_",
    "reduce_scatter_single": "_reduce_scatter_base_",
    "all_to_all": "alltoall_",
    "barrier": "barrier",
}
_operators: dict[int, str] = {}  # by the id of the code object of such a function


def _kind(code: CodeType) -> int:
    path, kind = code.co_filename, _OTHER
    if path == _FUNCTIONS:
        kind = _TOGETHER if code.co_name == "_coalescing_manager" else _FUNCTION
        if code.co_name in _BY_FUNCTION:
            _operators[id(code)] = _BY_FUNCTION[code.co_name]
    elif path == _OPERATORS:
        kind = _OPERATOR
    elif path in _SUMMING:
        kind = _CPP
    _codes.add(code, kind)
    return kind


def operator_of(frame: FrameType | None) -> str | None:
    """The operator that the calling function calls, if it calls one alone."""
    if frame is None:
        return None
    code = frame.f_code
    if id(code) not in _kinds:
        _kind(code)
    return _operators.get(id(code))


def functional_of(frame: FrameType | None) -> str | None:
    """The operator of functional collectives that calls: ``all_gather_into_tensor``; None where it is none of these."""
    if frame is None or (_kinds.get(id(frame.f_code)) or _kind(frame.f_code)) != _OPERATOR:
        return None
    operator = frame.f_locals.get("self")
    namespace, _, name = str(getattr(getattr(operator, "_schema", None), "name", "")).partition("::")
    return name if namespace.startswith("_c10d_functional") else None


def together(frame: FrameType | None) -> bool:
    """Whether calls that torch has collected are made as one."""
    return frame is not None and (_kinds.get(id(frame.f_code)) or _kind(frame.f_code)) == _TOGETHER


def reduction_of(frame: FrameType | None) -> int | None:
    """The reduction of the call that is made from this frame: its place in ``REDUCE_OPS``; None where that is not known.

    What C++ calls by itself is None too: ``summed_by_torch`` says whether it sums.
    """
    if frame is None:
        return None
    kind = _kinds.get(id(frame.f_code)) or _kind(frame.f_code)
    if kind == _FUNCTION:
        names = frame.f_locals
        try:
            number = NUMBERS.get(id(names["op"]))
        except KeyError:
            number = None
        return _number(getattr(names.get("opts"), "reduceOp", None)) if number is None else number
    if kind == _OPERATOR:
        for arg in (*frame.f_locals.get("args", ()), *frame.f_locals.get("kwargs", {}).values()):
            if isinstance(arg, str):
                return _NAMES.get(arg.lower())
    if kind == _TOGETHER:
        return _number(frame.f_locals["op_list"][0].redop)
    return None


def summed_by_torch(frame: FrameType | None) -> bool:
    """Whether C++ makes the call by itself, while the program waits in a backward or in DDP: its reducer sums."""
    return frame is None or (_kinds.get(id(frame.f_code)) or _kind(frame.f_code)) == _CPP


def _number(reduction: Any) -> int | None:
    if reduction is None:
        return None
    return NUMBERS.get(id(reduction), hash(reduction))
