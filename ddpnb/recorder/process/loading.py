"""When no garbage is collected: a collection takes long, and runs finalizers of the program, which may wait."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """No garbage is collected inside.

    A full collection looks through the half million objects that torch makes, which takes longer than the imports of
    the recorder; so close after torch's own one is due.

    Example:
        with without_collection():
            from ddpnb.recorder import rank
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
