"""Which values differ between ranks according to the source, and why."""

from __future__ import annotations

import ast
from dataclasses import replace

from ddpnb.lint import vocabulary as words
from ddpnb.lint.known import OWN_DATA, PLAIN, SAME, Value, join, loosely
from ddpnb.lint.names import Names
from ddpnb.lint.scopes import Scope
from ddpnb.source.expressions import all_arguments, dotted, last_name, shown

# Calls whose result differs between ranks if their arguments do.
_THROUGH = frozenset({
    "int", "bool", "float", "str", "abs", "min", "max", "any", "all", "sum", "round", "tuple", "list", "set", "sorted",
    "range", "torch.tensor", "torch.as_tensor", "torch.isnan", "torch.isfinite", "torch.isinf", "math.isnan",
    "math.isfinite", "math.isinf", "numpy.isnan", "numpy.isfinite", "torch.any", "torch.all", "torch.full",
    "math.ceil", "math.floor", "divmod", "repr", "iter", "next",
})  # fmt: skip
_THROUGH_METHODS = frozenset({
    "item", "any", "all", "sum", "mean", "max", "min", "strip", "lower", "upper", "startswith", "endswith", "split",
    "bool", "int", "float", "long", "cpu", "cuda", "to", "clone", "detach", "isnan", "isfinite", "tolist",
    "total_seconds",
})  # fmt: skip
# Collectives whose result is the same everywhere: it is returned, or in these arguments afterwards.
AGREEING = {
    "all_reduce": (0, "tensor"), "all_gather": (0, "tensor_list"), "all_gather_into_tensor": (0, "output_tensor"),
    "_all_gather_base": (0, "output_tensor"), "all_gather_object": (0, "object_list"), "broadcast": (0, "tensor"),
    "broadcast_object_list": (0, "object_list"), "all_reduce_coalesced": (0, "tensors"),
    "all_gather_tensor": (0, "self"), "gather_for_metrics": (9, ""),
}  # fmt: skip


class Values(Names):
    """The values of one function's expressions during a walk."""

    def of(self, expr: ast.expr | None) -> Value:
        """What is known of an expression's value at this point of the walk."""
        if expr is None or isinstance(expr, ast.Constant):
            return Value(expr=expr, plain=True)
        value = self._of(expr)
        if value.expr is not None:
            return value
        return Value(value.cause, value.words, expr, value.plain, value.follows, value.holder)

    def _of(self, expr: ast.expr) -> Value:
        if isinstance(expr, (ast.Name, ast.Attribute)):
            return self._of_name(expr)
        if isinstance(expr, ast.Subscript):
            return self._of_subscript(expr)
        if isinstance(expr, ast.Call):
            return self._of_call(expr)
        if isinstance(expr, ast.IfExp):
            test, arms = self.of(expr.test), (self.of(expr.body), self.of(expr.orelse))
            value = join(*arms)
            return self.chosen(test, arms, expr) if not value.cause else value
        if isinstance(expr, ast.Compare):
            left = self.of(expr.left)
            if left.holder and isinstance(expr.ops[0], (ast.Is, ast.IsNot)):
                return PLAIN
            value = join(left, *(self.of(part) for part in expr.comparators))
            return Value(value.cause, value.words, expr, True, value.follows)
        if isinstance(expr, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            value = join(*(self.of(part.iter) for part in expr.generators))
            return Value("data" if value.cause == "rank" else value.cause, value.words)
        if isinstance(expr, (ast.Lambda, ast.Dict)):
            return SAME
        if isinstance(expr, ast.NamedExpr):
            return self.of(expr.value)
        parts = [child for child in ast.iter_child_nodes(expr) if isinstance(child, ast.expr)]
        return join(*(self.of(part) for part in parts))

    def chosen(self, test: Value, arms: tuple[Value, Value], expr: ast.expr | None) -> Value:
        """One of two values, chosen by a test that differs between ranks. Two results of calls show nothing."""
        if not (arms[0].plain or arms[1].plain):
            return join(*arms)
        return Value(test.cause, test.words, expr, join(*arms).plain, join(test, *arms).follows)

    def _of_name(self, expr: ast.Name | ast.Attribute) -> Value:
        key = dotted(expr)
        if key is not None and key in self.env:
            return self.env[key]
        elsewhere = self._variable(expr)
        if elsewhere is not None and (elsewhere.cause or elsewhere.plain):
            return elsewhere
        name = last_name(expr)
        if isinstance(expr, ast.Attribute):
            base = self.of(expr.value)
            if name in _METADATA:
                return SAME
            if base.cause in OWN_DATA:
                return Value(base.cause, base.words)
            if base.words == "agreed":
                return base
            kept = self._facts.attributes.get(name, [])
            if kept and all(value.cause == "rank" or value.plain for value in kept):
                value = join(*kept)
                if value.cause == "rank" or not words.tells_rank(name):
                    return value if value.cause else SAME
                return SAME
        return self._by_name(name)

    def _of_subscript(self, expr: ast.Subscript) -> Value:
        base, index = self.of(expr.value), expr.slice
        if isinstance(index, ast.Constant) and isinstance(index.value, str):
            if words.is_rank_variable(index.value):
                return Value("rank", f"`{shown(expr)}` is set per process", expr)
            return base if base.cause else self._by_name(index.value)
        inner = self.of(index)
        if inner.cause == "rank" and base.cause in ("", "rank"):
            by_name = any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in ast.walk(index))
            return Value("rank", inner.words) if by_name else _own_part(expr)
        return Value(base.cause, base.words) if base.cause != "rank" or not base.plain else base

    def _of_call(self, expr: ast.Call) -> Value:
        op = self._operation(expr)
        if op is not None:
            if op in AGREEING or op in ("reduce", "all_reduce") or not expr.args:
                return Value(words="agreed")
            return SAME
        name = self.outside(expr.func)
        last = last_name(expr.func)
        if words.is_rank_call(name):
            return Value("rank", f"`{shown(expr)}` is rank-dependent", expr)
        if name in ("os.environ.get", "os.getenv") and expr.args:
            key = expr.args[0]
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and words.is_rank_variable(key.value):
                return Value("rank", f"`{shown(expr)}` is set per process", expr)
            return SAME
        own = words.own_finding(name)
        if own is not None:
            return Value(own[0], own[1], expr)
        if name in ("isinstance", "hasattr", "issubclass", "callable", "type", "id"):
            return PLAIN
        given = [self.of(argument) for argument in all_arguments(expr)]
        called = self._project.function(self._named(expr.func))
        if called is not None:
            returned = self._of_function(expr, called)
            if returned is not None:
                return returned
        elif words.tells_rank(last) and not given:
            return Value("rank", f"`{shown(expr)}` is rank-dependent, judging by its name", expr)
        base = self.of(expr.func.value) if isinstance(expr.func, ast.Attribute) else PLAIN
        if name in _THROUGH:
            values = given[: len(expr.args)]  # not the device
            return join(*values) if name != "range" or len(given) == 1 else _of_range(given, expr)
        if last in _THROUGH_METHODS and isinstance(expr.func, ast.Attribute):
            return join(base, *given)
        if last in ("get", "setdefault") and expr.args and isinstance(expr.args[0], ast.Constant):
            return self._by_name(str(expr.args[0].value))
        if self._iterable_dataset(expr.func):
            return Value("stream", f"`{shown(expr.func)}` is an IterableDataset: ranks may get different numbers of samples",
                         holder=True)  # fmt: skip
        if name == "len" and given and given[0].cause == "stream":
            return SAME
        if words.is_world_size(last) or words.is_distributed_flag(last):
            return SAME
        return loosely(base, *given)

    def _of_function(self, expr: ast.Call, called: Scope) -> Value | None:
        """What a function of the project returns, given these arguments."""
        result = self._facts.returns.get(called.key)
        if result is None:
            return None
        given = [
            value
            for name, value in self.bound(expr, called)
            if name in result.follows or (f"~{name}" in result.follows and value.cause in OWN_DATA)
        ]
        follows = join(*given).follows if given else frozenset[str]()
        if result.cause != "rank" and any(value.cause for value in given):
            return replace(join(*given), expr=None, plain=False, holder=True)
        if not result.cause:
            return Value(words=result.words, plain=result.plain, follows=follows)
        line = 0 if isinstance(called.node, ast.Module) else called.node.lineno
        said = f"`{last_name(expr.func)}()` ({called.path.rpartition('/')[2]}:{line})"
        if result.cause == "rank":
            further = "" if " depends on the rank" in result.words else f": {result.words}"
            return Value("rank", f"{said} depends on the rank{further}", expr, False, follows)
        return Value(result.cause, f"{said} may differ between ranks: {result.words}", expr, False, follows, True)

    def arguments(self, expr: ast.Call, called: Scope) -> list[tuple[str, ast.expr]]:
        """The parameters that a call passes, each with its argument."""
        parameters = [parameter.arg for parameter in called.parameters]
        plain = called.node.decorator_list if not isinstance(called.node, ast.Module) else []
        if called.owner and parameters and not any(last_name(parameter) == "staticmethod" for parameter in plain):
            parameters = parameters[1:]
        passed = [
            (name, argument)
            for name, argument in zip(parameters, expr.args, strict=False)
            if not isinstance(argument, ast.Starred)
        ]
        return passed + [
            (parameter.arg, parameter.value)
            for parameter in expr.keywords
            if parameter.arg in parameters and parameter.arg
        ]

    def bound(self, expr: ast.Call, called: Scope) -> list[tuple[str, Value]]:
        """The parameters that a call passes, each with what is known of its value."""
        return [(name, self.of(argument)) for name, argument in self.arguments(expr, called)]

    def _iterable_dataset(self, func: ast.expr) -> bool:
        target = self._named(func)
        if target is None or not target.path or target.instance:
            return False
        node = self._project.modules[target.path].classes.get(target.name)
        return node is not None and any(last_name(base) == "IterableDataset" for base in node.bases)


def _own_part(expr: ast.expr) -> Value:
    words = f"each rank takes its own shard, `{shown(expr)}`, and shards can differ in length"
    return Value("shard", words, None, False, frozenset(), True)


def _of_range(given: list[Value], expr: ast.expr) -> Value:
    """``range(rank, n, world)``: a shard per rank."""
    value = join(*given)
    return _own_part(expr) if value.cause == "rank" else value


_METADATA = frozenset({"device", "dtype", "requires_grad", "training", "layout", "is_cuda", "__name__", "__class__"})
