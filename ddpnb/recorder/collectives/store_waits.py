"""For which keys of a store each thread waits. Nothing is written: it is read when somebody asks where the rank is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from torch._C._distributed_c10d import FileStore, HashStore, PrefixStore, TCPStore

from ddpnb.recorder.events.hooks import Hooks
from ddpnb.recorder.holds.release import raises_releases
from ddpnb.recording.names import one_line

raises_releases(__name__)

_NAMES = ("wait", "get")
_KEYS, _TEXT = 4, 80
_OWN = "ddpnb/"  # keys of ddpnb itself
_waits: dict[int, tuple[Any, ...]] = {}  # the arguments of the call in which a thread is


class StoreWaits(Hooks):
    """The calls of stores that return when a key is set.

    Not of ``Store``, whose methods a program's own store takes as its own when C++ asks for them.
    """

    def install(self) -> None:
        for kind in (TCPStore, FileStore, HashStore, PrefixStore):
            for name in _NAMES:
                self.replace(kind, name, _noted)


def _noted(original: Callable[..., Any]) -> Callable[..., Any]:
    waits, thread = _waits, threading.get_ident

    def noted(*args: Any, **kwargs: Any) -> Any:
        me = thread()
        before, waits[me] = waits.get(me), (*args, *kwargs.values())
        try:
            return original(*args, **kwargs)
        finally:
            args, kwargs = (), {}  # a traceback that somebody keeps would keep the store, and its port
            if before is None:
                waits.pop(me, None)
            else:  # this call was made by a handler of a signal, within the other one
                waits[me] = before

    return noted


def awaited(thread: int | None) -> str:
    """For which keys of a store a thread waits, in words; empty: it is in no such call."""
    arguments = _waits.get(thread or 0, ())
    given = next((one for one in arguments[1:] if type(one) in (str, list, tuple)), ())
    keys = [given] if isinstance(given, str) else [key for key in given if type(key) is str][: _KEYS + 1]
    if not keys or keys[0].startswith(_OWN):
        return ""
    named = [f"'{one_line(key[:_TEXT])}'" for key in keys[:_KEYS]]
    listed = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
    more = " and more" if len(keys) > _KEYS else ""
    return f"the key{'s' if len(named) > 1 else ''} {listed}{more} of the {_kind(arguments[0])}"


def _kind(store: Any) -> str:
    return type(store).__name__ if type(store) in (TCPStore, FileStore, HashStore) else "store"
