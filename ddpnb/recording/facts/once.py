"""Memoised questions about a whole Recording that several findings ask."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from ddpnb.recording.recording import Recording

P = ParamSpec("P")
T = TypeVar("T")


def once(rule: Callable[Concatenate[Recording, P], T]) -> Callable[Concatenate[Recording, P], T]:
    """Cache the result in the Recording; callers must not change it.

    Where every rank fails differently, each failure is checked against rules that look at all ranks: without the
    cache the cost is quadratic in the number of ranks.
    """

    @wraps(rule)
    def asked(recording: Recording, *args: P.args, **kwargs: P.kwargs) -> T:
        key: Hashable = rule.__module__, rule.__qualname__, args, tuple(kwargs.items())
        if key not in recording.known:
            recording.known[key] = rule(recording, *args, **kwargs)
        return recording.known[key]

    return asked
