"""Questions to a whole Recording that several findings ask, answered once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from ddpnb.model.recording import Recording

P = ParamSpec("P")
T = TypeVar("T")


def once(rule: Callable[Concatenate[Recording, P], T]) -> Callable[Concatenate[Recording, P], T]:
    """Keep the answer with the Recording that was asked about; nobody may change it.

    Where every rank has failed in its own way each failure is asked whether something that concerns all
    ranks explains it: there would be as many looks at all ranks as there are ranks.
    """

    @wraps(rule)
    def asked(recording: Recording, *args: P.args, **kwargs: P.kwargs) -> T:
        key: Hashable = rule.__module__, rule.__qualname__, args, tuple(kwargs.items())
        if key not in recording.known:
            recording.known[key] = rule(recording, *args, **kwargs)
        return recording.known[key]

    return asked
