"""Functions that the launcher sends: those of a notebook see the variables of this rank, as cells do."""

from __future__ import annotations

import io
import pickle
import weakref
from collections.abc import Callable
from typing import Any

from ddpnb.recording.protocol import NAMESPACE

_MISSING = object()


class SentFunctions:
    """Calls functions in the namespace of the cells.

    A global that the notebook defines comes with the function; all others are those of this rank, and what the
    function declares ``global`` stays there.
    """

    def __init__(self) -> None:
        # What the notebook has put into the namespace, not kept alive where that can be.
        self._sent: dict[str, Callable[[], Any]] = {}

    def call(self, payload: bytes, namespace: dict[str, Any]) -> Callable[[], Any]:
        """What calls the function of ``payload``, which our own client sent over its signed channel."""
        import cloudpickle  # noqa: F401 (now, as the user's import path may have a module of this name)

        def main() -> Any:
            before = dict(namespace)
            function, args = _load(payload, namespace)
            sent = {name: value for name, value in namespace.items() if value is not before.get(name, _MISSING)}
            # A variable of a cell gives way for as long as the function runs: it may be a model in training.
            own = {name: before[name] for name in sent if name in before and not self._is_notebooks(name, before)}
            self._sent = {name: value for name, value in self._sent.items() if before.get(name, _MISSING) is value()}
            self._sent.update((name, _weak(value)) for name, value in sent.items())
            sent = {name: sent[name] for name in own}
            del before  # what the function deletes is not kept for it
            try:
                return function(*args)
            finally:
                for name, value in own.items():
                    if namespace.get(name, _MISSING) is sent[name]:
                        namespace[name] = value

        return main

    def _is_notebooks(self, name: str, namespace: dict[str, Any]) -> bool:
        return name in self._sent and namespace[name] is self._sent[name]()


def _weak(value: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(value)
    except TypeError:  # a number, a list: kept until the next function
        return lambda: value


def _load(payload: bytes, namespace: dict[str, Any]) -> Any:
    class Unpickler(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> Any:
            if pid != NAMESPACE:
                raise pickle.UnpicklingError(f"unknown reference {pid!r}")
            return namespace

    return Unpickler(io.BytesIO(payload)).load()
