"""What shows nouns, as text, pages or pictures: a noun imports none of it, and asks here.

The package says where it is, when it is imported; it is loaded when something is shown for the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_load: list[Callable[[], Any]] = []


def register(load: Callable[[], Any]) -> None:
    """Say how the module is loaded that has a function for each way to show a noun."""
    _load[:] = [load]


def writers() -> Any:
    """The module that was registered."""
    return _load[0]()
