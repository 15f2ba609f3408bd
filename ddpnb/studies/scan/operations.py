"""Which collective a call issues: through an alias, a method of a process group, or a function of the project."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ddpnb.recording.source.branches import FUNCTIONS, LOOPS
from ddpnb.recording.source.expressions import all_arguments, dotted, keyword, last_name, whole_text
from ddpnb.studies.scan import vocabulary as words
from ddpnb.studies.scan.modules import Project, Scope

_MOST_TOKENS = 200
_DEEPEST = 40  # functions that call functions
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
        self._flat: dict[tuple[str, str], tuple[str, ...]] = {}
        self._depth = 0
        self._uses_framework = any(
            isinstance(bound, tuple) and bound[1].startswith(_FRAMEWORKS)
            for scope in project.scopes()
            for bound in scope.names.values()
        )

    def operation(self, scope: Scope, call: ast.Call) -> str | None:
        """The collective that a call issues; None for every other call."""
        ref = self.project.resolve(scope, call.func)
        if ref is not None and ref.path:
            return None
        method = last_name(call.func)
        name = ref.name if ref is not None else dotted(call.func) or ""
        receiver = name.rpartition(".")[0]
        if ref is None and receiver == "dist":  # not bound in this file: the usual name of torch.distributed
            return words.operation(f"torch.distributed.{method}")
        if ref is not None and not name.startswith(_GROUP_MAKERS):
            known = words.operation(name) if "()" not in name or name.startswith("torch.") else None
            if known is not None or name.startswith("torch."):
                return known
        return self._method(receiver, method, call) if isinstance(call.func, ast.Attribute) else None

    def _method(self, receiver: str, method: str, call: ast.Call) -> str | None:
        if method in words.METHODS:
            return method
        bare = receiver.rpartition(".")[2].lower().removesuffix("()")
        unlike_others = method.lstrip("_").startswith(("allreduce", "allgather", "alltoall"))
        of_group = receiver.startswith(_GROUP_MAKERS) and method in words.GROUP
        if of_group or (unlike_others and bare.endswith(("pg", "group"))):
            return words.group_method(method)
        known = (
            (self._uses_framework and bare.endswith(("accelerator", "fabric")) and method in words.ACCELERATOR)
            or (self._uses_framework and bare in ("strategy", "lightningmodule") and method in words.STRATEGY)
            or (receiver == "deepspeed.initialize()" and method in ("save_checkpoint", "load_checkpoint"))
            or (method == "join" and not call.args and bare == "distributeddataparallel")
        )
        return method if known else None

    def called(self, scope: Scope, call: ast.Call) -> list[tuple[Scope, bool]]:
        """The project's functions that a call runs, or passes on as an argument (then True)."""
        called = self.project.function(self.project.resolve(scope, call.func))
        functions = [(called, False)] if called is not None else []
        for argument in all_arguments(call):  # Thread(target=talk)
            ref = self.project.resolve(scope, argument) if isinstance(argument, (ast.Name, ast.Attribute)) else None
            if ref is not None and ref.path and ref.name in self.project.modules[ref.path].functions:
                functions.append((self.project.modules[ref.path].functions[ref.name], True))
        return functions

    def sequence(self, scope: Scope, nodes: Iterable[ast.AST]) -> tuple[str, ...]:
        """The collectives (and loops) of some statements and of the functions they call, in the order of the source."""
        tokens: list[str] = []
        waiting = list(reversed(list(nodes)))
        while waiting and len(tokens) < _MOST_TOKENS:
            node = waiting.pop()
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                continue
            if isinstance(node, LOOPS) and (inner := self.sequence(scope, [*node.body, *node.orelse])):
                tokens += [whole_text(node.test if isinstance(node, ast.While) else node.iter), *inner, "end"]
                continue
            op = self.operation(scope, node) if isinstance(node, ast.Call) else None
            if op is not None and isinstance(node, ast.Call):
                tokens.append(f"{op} {group_of(node)}")
            elif isinstance(node, ast.Call):
                for function, _ in self.called(scope, node):
                    tokens += self.all_of(function)
            waiting += reversed(list(ast.iter_child_nodes(node)))
        return tuple(tokens)

    def all_of(self, scope: Scope) -> tuple[str, ...]:
        """The collectives of a function and of those that it calls."""
        if scope.key not in self._flat and self._depth < _DEEPEST:
            self._flat[scope.key] = ()  # for recursive functions
            self._depth += 1
            self._flat[scope.key] = self.sequence(scope, scope.node.body)
            self._depth -= 1
        return self._flat.get(scope.key, ())


def group_of(call: ast.Call) -> str:
    """The group that a collective names; empty for the default one."""
    group = keyword(call, "group", "process_group")
    if group is None and last_name(call.func) == "barrier" and call.args:
        group = call.args[0]
    if group is None or isinstance(group, ast.Constant) or last_name(group) == "WORLD":
        return ""
    return whole_text(group)
