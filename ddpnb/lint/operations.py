"""Which collective a call issues: through an alias, a method of a process group, or a function of the project."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ddpnb.lint import vocabulary as words
from ddpnb.lint.matching import Token
from ddpnb.lint.modules import Project, Ref
from ddpnb.lint.scopes import Scope
from ddpnb.source.branches import FUNCTIONS
from ddpnb.source.expressions import all_arguments, dotted, keyword, last_name, shown

_MOST_TOKENS = 200
_FRAMEWORKS = ("accelerate", "lightning", "pytorch_lightning", "lightning_fabric", "deepspeed")
_GROUP_MAKERS = (
    "torch.distributed.new_group()", "torch.distributed.group.WORLD", "torch.distributed.distributed_c10d.group.WORLD",
    "torch.distributed.distributed_c10d._get_default_group()", "torch.distributed.ProcessGroup()",
    "torch.distributed.distributed_c10d.ProcessGroup()", "torch.distributed.ProcessGroupNCCL()",
    "torch.distributed.ProcessGroupGloo()", "torch.distributed.split_group()",
)  # fmt: skip


class Operations:
    """The collectives of a project's calls."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._known: dict[int, str | None] = {}  # by the id of a node, which the tree keeps
        self._calling: dict[int, bool] = {}
        self._flat: dict[tuple[str, str], tuple[Token, ...]] = {}
        self._uses = {
            name.partition(".")[0]
            for scope in project.scopes()
            for _, name, _ in scope.imports.values()
            if name.startswith(_FRAMEWORKS)
        }

    def operation(self, scope: Scope, call: ast.Call) -> str | None:
        """The collective that a call issues; None for every other call."""
        if id(call) not in self._known:
            self._known[id(call)] = self._operation(scope, call)
        return self._known[id(call)]

    def _operation(self, scope: Scope, call: ast.Call) -> str | None:
        ref = self.project.resolve(scope, call.func)
        if ref is not None and ref.path:
            return None
        method = last_name(call.func)
        if ref is not None:
            if ref.name.startswith("torch.") and not ref.name.startswith(_GROUP_MAKERS):
                return words.operation(ref.name)
            receiver = ref.name.rpartition(".")[0]
            known = words.operation(ref.name) if "()" not in ref.name else None
            if known is not None:
                return known
        else:
            written = dotted(call.func) or ""
            receiver = written.rpartition(".")[0]
            if receiver == "dist":  # not bound in this file: the usual name of torch.distributed
                return words.operation(f"torch.distributed.{method}")
        if not isinstance(call.func, ast.Attribute):
            return None
        return self._method(receiver, method, call)

    def _method(self, receiver: str, method: str, call: ast.Call) -> str | None:
        if method in words.METHODS:
            return method
        bare = receiver.rpartition(".")[2].lower().removesuffix("()")
        if receiver.startswith(_GROUP_MAKERS) and method in words.GROUP:
            return words.group_method(method)
        unlike_others = method.lstrip("_").startswith(("allreduce", "allgather", "alltoall"))
        if unlike_others and bare.endswith(("pg", "group")):
            return words.group_method(method)
        if bare.endswith(("accelerator", "fabric")) and self._uses and method in words.ACCELERATOR:
            return method
        if bare in ("strategy", "lightningmodule") and self._uses and method in ("barrier", "all_gather", "reduce"):
            return method
        if receiver == "deepspeed.initialize()" and method in ("save_checkpoint", "load_checkpoint"):
            return method
        if method == "join" and not call.args and bare == "distributeddataparallel":
            return "join"
        return None

    def makes_calls(self, expr: ast.expr) -> bool:
        """Whether an expression contains a call."""
        calls = self._calling.get(id(expr))
        if calls is None:
            calls = any(isinstance(part, (ast.Call, ast.NamedExpr)) for part in ast.walk(expr))
            self._calling[id(expr)] = calls
        return calls

    def tokens(self, scope: Scope, call: ast.Call) -> Sequence[Token]:
        """The collectives (and sends) that a call stands for: its own, or those of the function that it runs."""
        op = self.operation(scope, call)
        if op is not None:
            group = group_of(call)
            return ((op, shown(group) if group is not None else ""),)
        tokens: list[Token] = []
        for part in (call.func, *all_arguments(call)):
            if part is call.func or isinstance(part, (ast.Name, ast.Attribute)):  # Thread(target=talk)
                named = self.project.resolve(scope, part)
                called = self.project.function(named) if part is call.func or not _is_object(named) else None
                tokens += self.all_of(called) if called is not None else ()
        return tokens

    def all_of(self, scope: Scope) -> tuple[Token, ...]:
        """The collectives of a function and of those that it calls, in the order of the source."""
        if scope.key in self._flat:
            return self._flat[scope.key]
        self._flat[scope.key] = ()  # for recursive functions
        tokens: list[Token] = []
        waiting: list[ast.AST] = list(reversed(scope.node.body))
        while waiting and len(tokens) < _MOST_TOKENS:
            node = waiting.pop()
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                continue
            if isinstance(node, ast.Call):
                tokens += self.tokens(scope, node)
            waiting += reversed(list(ast.iter_child_nodes(node)))
        self._flat[scope.key] = tuple(tokens)
        return self._flat[scope.key]


def _is_object(ref: Ref | None) -> bool:
    return ref is not None and ref.instance


def group_of(call: ast.Call) -> ast.expr | None:
    """The group that a collective names; None for the default one."""
    group = keyword(call, "group", "process_group")
    if group is None and last_name(call.func) == "barrier" and call.args:
        group = call.args[0]
    if group is None or isinstance(group, ast.Constant) or last_name(group) == "WORLD":
        return None
    return group
