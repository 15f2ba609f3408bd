"""Loads the engine of ipyparallel, without what no rank uses."""

from __future__ import annotations

import sys
from collections.abc import Callable

_DEBUGGER = "debugpy"


def load() -> Callable[[], None]:
    """Import the engine; returns its main function.

    ipykernel imports a debugger, which takes a tenth of a second and 9 MB, and which an engine has no channel for.
    """
    hides = _DEBUGGER not in sys.modules
    if hides:
        sys.modules[_DEBUGGER] = None  # type: ignore[assignment]  # an import of it fails
    try:
        import ipykernel.debugger  # noqa: F401
    finally:
        if hides:
            del sys.modules[_DEBUGGER]  # the user may import it
    from ipyparallel.engine.app import main

    return main
