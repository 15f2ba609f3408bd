"""Names by which modules have imported functions: what stands for a function must be called by these names too.

``from torch.distributed.distributed_c10d import new_group`` gives a module a name of its own, as
``torch.distributed.device_mesh`` has, and a script that did it before its rank was known.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from ddpnb.recorder.stacks.user_frames import is_user_file


def rebind(stands: Mapping[int, Any], names: set[str]) -> None:
    """In all modules, put something else in the place of functions.

    Libraries import them by their own names; in the user's modules every name is looked at. To look at all names of
    torch would cost a forked rank a copy of their pages.

    Args:
        stands: by the ``id`` of a function, what is to be called for it. The functions must be alive.
        names: their own names.
    """
    for namespace in _namespaces():
        file = namespace.get("__file__")
        users = is_user_file(file) if isinstance(file, str) else namespace.get("__name__") == "__main__"
        for name in [*namespace] if users else names & namespace.keys():
            now = stands.get(id(namespace.get(name)))
            # Not __excepthook__ and its like: the standard library keeps originals there.
            if now is not None and not name.startswith("__"):
                namespace[name] = now


def _namespaces() -> Iterator[dict[str, Any]]:
    """Those of all modules but ddpnb's own and the builtins."""
    for name, module in [*sys.modules.items()]:
        own = name == "ddpnb" or name.startswith("ddpnb.")
        # type(): a stand-in for a module may run code when it is asked for its class.
        if issubclass(type(module), ModuleType) and not own and name != "builtins":
            yield ModuleType.__getattribute__(module, "__dict__")


def homes_of_manual_seed() -> list[ModuleType]:
    """The modules in which ``torch.manual_seed`` stands by itself: the compiler, once it is imported, has one of its own in ``torch``."""
    import torch

    return [*{id(owner.manual_seed): owner for owner in (torch, torch.random)}.values()]
