"""What a statement does with a tensor: reads it, changes it, or only looks at its shape.

Where that is unknown (the tensor is kept, handed to somebody, looked at through a view that is
kept) nothing is said: a false alarm is worse than a miss.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ddpnb.recording.source.branches import FUNCTIONS
from ddpnb.recording.source.expressions import dotted, last_name
from ddpnb.recording.source.names import passed
from ddpnb.recording.source.works import Names

# "returned": it leaves the function. "unclear": its receiver may wait for it. "rebound": the name has another value now.
What = Literal["read", "changed", "returned", "unclear", "rebound"]

_LOOKS = frozenset({
    "shape", "size", "numel", "dtype", "device", "dim", "ndim", "ndimension", "stride", "is_cuda", "element_size",
    "nelement", "requires_grad", "layout", "is_contiguous", "data_ptr", "nbytes", "itemsize", "is_floating_point",
    "type", "names", "untyped_storage", "storage", "record_stream", "is_complex", "is_leaf", "grad_fn", "get_device",
    "requires_grad_", "retain_grad", "register_hook", "storage_offset", "is_sparse", "is_meta", "is_pinned",
    "register_post_accumulate_grad_hook", "new_empty", "new_zeros", "new_ones", "new_full", "new_tensor",
    "append", "extend", "insert", "pop", "index", "count", "__len__", "_version",
})  # fmt: skip
_VIEWS = frozenset({
    "data", "T", "mT", "H", "mH", "real", "imag", "view", "view_as", "detach", "reshape", "unsqueeze", "squeeze",
    "expand", "expand_as", "permute", "transpose", "t", "narrow", "chunk", "split", "unbind", "flatten", "movedim",
})  # fmt: skip
_TENSOR_OPERANDS = frozenset({
    "add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "copy_", "matmul", "mm", "bmm", "dot", "lerp_",
    "addcmul_", "addcdiv_", "masked_fill_", "backward", "mv", "addmm", "pow", "eq", "ne", "lt", "gt", "allclose",
})  # fmt: skip
_READING_BUILTINS = frozenset({
    "print", "float", "int", "bool", "sum", "max", "min", "abs", "round", "str", "repr", "format", "sorted", "all",
    "any", "complex",
})  # fmt: skip
_LIKE = re.compile(r"(?:empty|zeros|ones|rand|randn|full|randint)_like|is_\w+|numel|typename|result_type|promote_types")
_KEEPERS = re.compile(
    r"register|hook|callback|log|record|append|push|add|put|store|save|submit|send|schedule|queue|collect|watch|track|"
    r"shape|describe|info|debug|check|assert|keep|wrap|make|build|create|free|release"
)


@dataclass(frozen=True, slots=True)
class Touch:
    """One use of a tensor."""

    line: int
    what: What


class Touches:
    """The uses of tensors within one function."""

    def __init__(self, names: Names, function: ast.AST, *, deep: bool = True) -> None:
        self._names, self._deep = names, deep  # also look into called functions, one level deep
        self._parents = {id(child): node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}

    def of(self, node: ast.AST, name: str) -> list[Touch]:
        """What ``node`` does with the tensor ``name`` (``x`` or ``self.x``), in the order of the evaluation."""
        touches: list[Touch] = []
        for part in _evaluated(node):
            if isinstance(part, (ast.Name, ast.Attribute)) and dotted(part) == name:
                what = self._what(part)
                if what is not None:
                    touches.append(Touch(part.lineno, what))
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store) and name.startswith(f"{part.id}."):
                touches.append(Touch(part.lineno, "rebound"))
        return touches

    def _what(self, use: ast.Name | ast.Attribute) -> What | None:
        parent = self._parents.get(id(use))
        if isinstance(use.ctx, ast.Store):
            return "changed" if isinstance(parent, ast.AugAssign) else "rebound"
        if isinstance(use.ctx, ast.Del):
            return "rebound"
        here: ast.AST = use
        while parent is not None:
            step = self._step(here, parent)
            if not isinstance(step, ast.AST):
                return step
            here, parent = step, self._parents.get(id(step))
        return None

    def _step(self, here: ast.AST, parent: ast.AST) -> What | ast.AST | None:
        """What the tensor ``here`` is used for in ``parent``; a node if it becomes a part of that one."""
        if isinstance(parent, ast.Attribute):
            return self._attribute(parent)
        if isinstance(parent, ast.Subscript):
            if here is parent.slice:
                return "read"
            if isinstance(parent.ctx, ast.Store):
                return "changed"
            return parent if isinstance(parent.ctx, ast.Load) else None
        if isinstance(parent, (ast.BinOp, ast.UnaryOp, ast.FormattedValue)):
            return "read"
        if isinstance(parent, ast.Compare):
            plain = all(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in parent.ops)
            return None if plain else "read"
        if isinstance(parent, ast.AugAssign):
            return "changed" if here is parent.target else "read"
        if isinstance(parent, (ast.If, ast.While, ast.Assert, ast.IfExp)) and here is parent.test:
            return "read"
        if isinstance(parent, (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Starred, ast.IfExp, ast.keyword)):
            return parent
        if isinstance(parent, ast.Call):
            return self._argument(here, parent)
        if isinstance(parent, ast.Return):
            return "returned"
        if isinstance(parent, (ast.Yield, ast.YieldFrom, ast.Await)):
            return "unclear"
        return None

    def _attribute(self, attribute: ast.Attribute) -> What | ast.AST | None:
        call = self._parents.get(id(attribute))
        called = isinstance(call, ast.Call) and call.func is attribute
        name = attribute.attr
        if isinstance(attribute.ctx, ast.Store):
            return "changed" if name == "data" else None
        if name in _LOOKS:
            return None
        if name in _VIEWS:
            return call if called else attribute
        if not called:
            return None
        return "changed" if name.endswith("_") and not name.startswith("_") else "read"

    def _argument(self, here: ast.AST, call: ast.Call) -> What | ast.AST | None:
        if isinstance(here, ast.keyword) and here.arg == "out":
            return "changed"
        func, last = call.func, last_name(call.func)
        if name := self._names.imported(func):
            return _outside(name, last)
        if last in self._names.functions:
            return self._in_function(here, call) if self._deep else None
        if isinstance(func, ast.Name) and hasattr(builtins, last):
            return "read" if last in _READING_BUILTINS else None
        if isinstance(func, ast.Name) or (isinstance(func, ast.Attribute) and dotted(func.value) == "self"):
            kept = last[:1].isupper() or _KEEPERS.search(last.lower())
            return None if kept else "read"  # model(x), self.head(x)
        return "read" if last in _TENSOR_OPERANDS else None

    def _in_function(self, here: ast.AST, call: ast.Call) -> What | None:
        """A function or method of this file: what it does with its parameter first."""
        function = self._names.functions[last_name(call.func)]
        given = passed(function, call).items()
        name = next((name for name, value in given if value in (here, getattr(here, "value", None))), None)
        if name is None:
            return None
        inner = Touches(self._names, function, deep=False)
        first = next((touch for statement in function.body for touch in inner.of(statement, name)), None)
        return first.what if first is not None and first.what in ("read", "changed") else None


def _outside(name: str, last: str) -> What | None:
    if name.startswith("torch.distributed"):
        return "unclear"  # another call on the same tensor, which may be ordered after this one
    if not name.startswith(("torch.", "numpy.", "math.")) or name.startswith(("torch.utils.", "torch.cuda.")):
        return None
    return None if last[:1].isupper() or _LIKE.fullmatch(last) else "read"


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement in the order in which they are evaluated, without functions within it."""
    if isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
        return
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and node.value is not None:
        children.remove(node.value)
        children.insert(0, node.value)
    for child in children:
        yield from _evaluated(child)
    yield node
