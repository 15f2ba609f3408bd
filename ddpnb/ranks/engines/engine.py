"""Loads the engine and the controller of ipyparallel, without what the processes of a world do not use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

_DEBUGGER = "debugpy"
_CLUSTERS, _OF_CLUSTERS = "ipyparallel.cluster", ("Cluster", "ClusterManager")


@contextmanager
def without(name: str, stand_in: ModuleType | None = None) -> Iterator[None]:
    """Inside, an import of this module fails, or gives another one; unless it is loaded already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = stand_in  # type: ignore[assignment]  # None: an import of it fails
    try:
        yield
    finally:
        del sys.modules[name]  # the user may import it


def load_ipyparallel() -> None:
    """Import ipyparallel without what starts clusters, which takes a third of its import.

    It is imported when somebody asks for it.
    """
    if "ipyparallel" in sys.modules:
        return
    stand_in = ModuleType(_CLUSTERS)
    vars(stand_in).update(dict.fromkeys(_OF_CLUSTERS))
    with without(_CLUSTERS, stand_in):
        import ipyparallel
    for name in _OF_CLUSTERS:
        delattr(ipyparallel, name)

    def on_demand(name: str) -> Any:
        if name in _OF_CLUSTERS:
            return getattr(import_module(_CLUSTERS), name)
        raise AttributeError(f"module 'ipyparallel' has no attribute {name!r}")

    ipyparallel.__getattr__ = on_demand  # type: ignore[attr-defined]


def load() -> Callable[[], None]:
    """Import the engine; returns its main function.

    ipykernel imports a debugger, which takes a tenth of a second and 9 MB, and which an engine has no channel for.
    """
    load_ipyparallel()
    with without(_DEBUGGER):
        import ipykernel.debugger  # noqa: F401
    from ipyparallel.engine.app import main

    return main


def load_controller() -> Callable[[], None]:
    """Import the controller; returns its main function.

    It imports numpy for one of its ways to distribute tasks, which a world does not use, and works without.
    """
    load_ipyparallel()
    with without("numpy"):
        from ddpnb.ranks.engines.controller import main
    return main
