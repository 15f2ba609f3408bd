"""Which collective a call issues: through an alias, or a method of a process group."""

from __future__ import annotations

import ast

from ddpnb.recording.source.expressions import dotted, keyword, last_name, whole_text
from ddpnb.recording.source.names import Names
from ddpnb.studies.scan import vocabulary as words

FRAMEWORKS = ("accelerate", "lightning", "pytorch_lightning", "lightning_fabric", "deepspeed")
_GROUP_MAKERS = (
    "torch.distributed.new_group()", "torch.distributed.group.WORLD", "torch.distributed.distributed_c10d.group.WORLD",
    "torch.distributed.distributed_c10d._get_default_group()", "torch.distributed.ProcessGroup()",
    "torch.distributed.distributed_c10d.ProcessGroup()", "torch.distributed.ProcessGroupNCCL()",
    "torch.distributed.ProcessGroupGloo()", "torch.distributed.split_group()",
)  # fmt: skip


def operation(names: Names, call: ast.Call, uses_framework: bool) -> str | None:
    """The collective that a call issues; None for every other call.

    Args:
        names: of the file.
        call: in it.
        uses_framework: whether the project imports one, so that ``accelerator.gather()`` is known.
    """
    name, method = names.outside(call.func), last_name(call.func)
    if not name and dotted(call.func) == f"dist.{method}" and "dist" not in names.bound:
        name = f"torch.distributed.{method}"  # its usual name, where it is not bound in this file
    if not name.startswith(_GROUP_MAKERS):
        known = words.operation(name) if "()" not in name or name.startswith("torch.") else None
        if known is not None or name.startswith("torch."):
            return known
    if not isinstance(call.func, ast.Attribute):
        return None
    receiver = (name or dotted(call.func) or "").rpartition(".")[0]
    return _method(receiver, method, call, uses_framework)


def _method(receiver: str, method: str, call: ast.Call, uses_framework: bool) -> str | None:
    if method in words.METHODS:
        return method
    bare = receiver.rpartition(".")[2].lower().removesuffix("()")
    unlike_others = method.lstrip("_").startswith(("allreduce", "allgather", "alltoall"))
    of_group = receiver.startswith(_GROUP_MAKERS) and method in words.GROUP
    if of_group or (unlike_others and bare.endswith(("pg", "group"))):
        return words.group_method(method)
    known = (
        (uses_framework and bare.endswith(("accelerator", "fabric")) and method in words.ACCELERATOR)
        or (uses_framework and bare in ("strategy", "lightningmodule") and method in words.STRATEGY)
        or (receiver == "deepspeed.initialize()" and method in ("save_checkpoint", "load_checkpoint"))
        or (method == "join" and not call.args and bare == "distributeddataparallel")
    )
    return method if known else None


def group_of(call: ast.Call) -> str:
    """The group that a collective names; empty for the default one."""
    group = keyword(call, "group", "process_group")
    if group is None and last_name(call.func) == "barrier" and call.args:
        group = call.args[0]
    if group is None or isinstance(group, ast.Constant) or last_name(group) == "WORLD":
        return ""
    return whole_text(group)
