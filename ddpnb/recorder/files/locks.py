"""Locks that code of the user's may find taken by its own thread.

A signal handler of the user's, or a ``__del__`` that the collector calls, runs between any two lines of ours. When it
calls what a hook watches (``torch.save``), the hook must not wait for a lock that the interrupted lines hold, nor
change what they are in the midst of changing: it records nothing then.
"""

from __future__ import annotations

from typing import Any


def is_mine(lock: Any) -> bool:
    """Whether the calling thread holds this ``threading.RLock``, which sets its owner in one step as it is taken."""
    return lock._is_owned()
