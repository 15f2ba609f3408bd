"""What the names of a file stand for outside of it: what it imports, and what it assigns from that."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from ddpnb.recording.source.expressions import dotted

_DEEPEST = 12  # aliases of aliases

Import = tuple[int, str, str]  # the leading dots, the module, and the name taken from it


class Names:
    """The names of a file, ``self.x`` included: each has one meaning, the first.

    Args:
        parsed: the file.
        ours: whether a module (the leading dots, and its name) is of the file's own project.

    Example:
        >>> Names(ast.parse("import torch.distributed as d")).outside(ast.parse("d.new_group()", mode="eval").body)
        'torch.distributed.new_group()'
    """

    def __init__(self, parsed: ast.Module, ours: Callable[[int, str], bool] = lambda level, _: level > 0) -> None:
        self._ours = ours
        self.bound: dict[str, Import | ast.expr] = {}
        self.imports: list[Import] = []
        for node in ast.walk(parsed):
            for name, meant in _bindings(node):
                self.imports += [meant] if isinstance(meant, tuple) else []
                self.bound.setdefault(name, meant)

    def outside(self, expr: ast.expr, depth: int = 0) -> str:
        """In dots, what an expression stands for that the file imports; empty for the project's own and for all else."""
        name = dotted(expr) or ""
        bound = self.bound.get(name)
        if isinstance(bound, tuple):
            return self._imported(bound)
        if bound is not None and bound is not expr:
            return self.outside(bound, depth + 1) if depth < _DEEPEST else ""
        if isinstance(expr, (ast.Call, ast.Attribute)) and depth < _DEEPEST:
            base = self.outside(expr.func if isinstance(expr, ast.Call) else expr.value, depth + 1)
            return base and (f"{base}()" if isinstance(expr, ast.Call) else f"{base}.{expr.attr}")
        stars = (module for _, module, taken in self.imports if taken == "*" and module.startswith("torch.distributed"))
        return next((f"{module}.{name}" for module in stars), "") if isinstance(expr, ast.Name) else ""

    def _imported(self, bound: Import) -> str:
        level, *names = bound
        whole = ".".join(filter(None, names))
        return "" if any(self._ours(level, name) for name in (names[0], whole)) else whole


def passed(function: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call) -> dict[str, ast.expr]:
    """The parameters of a function that a call of it passes, each with its argument."""
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    bound = names[1:] if names[:1] in (["self"], ["cls"]) else names
    return dict(zip(bound, call.args, strict=False)) | {one.arg: one.value for one in call.keywords if one.arg in names}


def _bindings(node: ast.AST) -> Iterator[tuple[str, Import | ast.expr]]:
    """The names that a node binds, each with its meaning."""
    match node:
        case ast.Import(names=names):
            for alias in names:
                first = alias.name.partition(".")[0]
                yield alias.asname or first, (0, alias.name if alias.asname else first, "")
                yield alias.name, (0, alias.name, "")  # import a.b binds a, and reads a.b
        case ast.ImportFrom(module=module, names=names, level=level):
            yield from ((alias.asname or alias.name, (level, module or "", alias.name)) for alias in names)
        case ast.Assign(targets=targets, value=value):
            yield from (pair for target in targets for pair in _assigned(target, value))
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield from _assigned(target, value)
        case ast.withitem(optional_vars=ast.expr() as target, context_expr=value):
            yield from _assigned(target, value)
        case ast.arg(arg=name, annotation=(ast.Name() | ast.Attribute()) as made):
            yield name, ast.Call(made, [], [])
        case _:
            pass


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Call) and target.elts:
        target = target.elts[0]  # engine, optimizer, ... = deepspeed.initialize(...)
    if isinstance(value, ast.IfExp):  # group = new_group() if rank == 0 else None
        value = value.body if isinstance(value.body, ast.Call) else value.orelse
    name = dotted(target) or ""
    if isinstance(value, (ast.Name, ast.Attribute, ast.Call)) and name.count(".") <= name.startswith("self."):
        yield name, value
