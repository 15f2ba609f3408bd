"""What uses the process groups of this rank: it stays with them when a new default group is created.

Models that are wrapped in ``DistributedDataParallel`` on the default group do not: they are moved (``rebind``).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

_MOST = 16
_OURS = ("ddpnb.", "torch.distributed.distributed_c10d")


def users(namespace: Mapping[str, Any]) -> list[str]:
    """What must be made again after a new default group: sub-groups, meshes, and what holds a group; as text.

    Args:
        namespace: the variables of the cells.
    """
    if not dist.is_initialized():
        return []
    default = dist.group.WORLD
    groups = [group for group in list(c10d._world.pg_map) if isinstance(group, dist.ProcessGroup)][:_MOST]
    found = [f"new_group({dist.get_process_group_ranks(group)})" for group in groups if group is not default]
    # The namespace is as old as the process, and gc does not look through what was frozen then.
    found += [f"the variable {name}" for name, value in list(namespace.items()) if value is default]
    found += [_of_mesh(mesh) for mesh in gc.get_objects() if type(mesh) is DeviceMesh][:_MOST]
    for group in groups:
        with suppress(Exception):  # of an object of the user's
            found += _holders(group, is_default=group is default)
    return list(dict.fromkeys(text[:120] for text in found))[:_MOST]


def wrapped_models() -> int:
    """The number of models that would use a new default group."""
    if not dist.is_initialized():
        return 0
    default = dist.group.WORLD
    return sum(
        issubclass(type(model), DistributedDataParallel) and model.__dict__.get("process_group") is default
        for model in gc.get_objects()
    )


def _of_mesh(mesh: Any) -> str:
    with suppress(Exception):
        return f"DeviceMesh{tuple(mesh.mesh.shape)}"
    return "DeviceMesh"


def _holders(group: Any, *, is_default: bool) -> Iterator[str]:
    """The modules and objects that refer to this group."""
    for holder in gc.get_referrers(group):
        owner = holder
        if type(holder) is dict:  # of an object, or torch's own table of groups
            owner = next((one for one in gc.get_referrers(holder) if _variables(one) is holder), None)
        variables = _variables(owner)
        if variables is None or type(owner).__module__.startswith(_OURS):
            continue
        names = [name for name, value in list(variables.items()) if value is group]
        if isinstance(owner, ModuleType):
            if not owner.__name__.startswith(("torch.", "ddpnb.")):
                yield from (f"{owner.__name__}.{name}" for name in names)
        elif names and not (is_default and issubclass(type(owner), DistributedDataParallel)):
            yield f"{type(owner).__name__} (its {names[0]})"


def _variables(owner: Any) -> dict[str, Any] | None:
    """The attributes of an object, without running its code."""
    try:
        found = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None
