"""Faults in functions of torch: hooks that are in place while one is armed, and settings that are restored after it."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

from ddpnb.recorder.events.hooks import Hooks, put_in_place
from ddpnb.recorder.faults.armed import MAX_TROUBLES, Armed
from ddpnb.recorder.files.blackbox import BlackBox


class FaultHooks(Hooks):
    """The faults of one place; sub-classes put their hooks in ``install``."""

    def __init__(self, box: BlackBox, rank: int) -> None:
        super().__init__(box)
        self.rank = rank
        self.armed: list[Armed] = []
        self._installed = False
        self._applied: weakref.WeakKeyDictionary[Any, list[Armed]] = weakref.WeakKeyDictionary()
        self._settings: list[tuple[Armed, Callable[[], None]]] = []

    def settle(self) -> None:
        """Restore the settings of faults that are not armed any more; keep hooks only while a fault is armed."""
        ended = [undo for armed, undo in self._settings if armed not in self.armed]
        self._settings = [setting for setting in self._settings if setting[0] in self.armed]
        for undo in ended:
            with contextlib.suppress(Exception):  # one that fails must not keep the others
                undo()
        if bool(self.armed) != self._installed:
            self._installed = not self._installed
            if self._installed:
                put_in_place(self)
            else:
                self.remove()

    def due(self, *kinds: str) -> list[Armed]:
        """The faults of these kinds that are triggered now; counts and records them."""
        return self._trigger(self._of(*kinds))

    def due_once(self, kind: str, thing: object) -> list[Armed]:
        """As ``due``, of faults that were not triggered on this thing yet."""
        applied = self._applied.get(thing, [])
        due = self._trigger([armed for armed in self._of(kind) if armed not in applied])
        if due:
            self._applied[thing] = [*applied, *due]
        return due

    def due_since(self, kind: str) -> list[Armed]:
        """The faults of this kind that are triggered now, or were before."""
        self._trigger([armed for armed in self._of(kind) if not armed.triggered])
        return [armed for armed in self._of(kind) if armed.triggered]

    def unable(self, kind: str, why: str) -> None:
        """Note that faults of this kind cannot be triggered here."""
        for armed in self._of(kind):
            if why not in armed.troubles and len(armed.troubles) < MAX_TROUBLES:
                armed.troubles.append(why)

    def wanted(self, kind: str) -> bool:
        """Whether one of this kind is armed: what it needs is kept only then."""
        return bool(self._of(kind))

    def on_heal(self, armed: Armed, thing: Any, put_back: Callable[[Any], object]) -> None:
        """Restore a setting of ``thing``, if that still exists, when the fault is disarmed."""
        reference = weakref.ref(thing)

        def undo() -> None:
            living = reference()
            if living is not None:
                put_back(living)

        self._settings.append((armed, undo))

    def _of(self, *kinds: str) -> list[Armed]:
        return [armed for armed in self.armed if armed.fault.kind in kinds]

    def _trigger(self, candidates: list[Armed]) -> list[Armed]:
        # A forked worker has the hooks too, but the box is its parent's.
        due = [] if self.box.silent else [armed for armed in candidates if armed.trigger(self.box.steps)]
        for armed in due:
            armed.note(self.box)
        return due
