"""Faults that are settings: they last until healed, and are then restored."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

from ddpnb.recorder.blackbox import BlackBox
from ddpnb.recorder.faults.armed import MAX_TROUBLES, Armed
from ddpnb.recorder.faults.torch_hooks import Strikes


class Lasting(Strikes):
    """The faults of one place, some of which last."""

    def __init__(self, box: BlackBox, rank: int) -> None:
        super().__init__(box, rank)
        self._struck: weakref.WeakKeyDictionary[Any, list[Armed]] = weakref.WeakKeyDictionary()
        self._settings: list[tuple[Armed, Callable[[], None]]] = []

    def settle(self) -> None:
        healed = [undo for armed, undo in self._settings if armed not in self.armed]
        self._settings = [one for one in self._settings if one[0] in self.armed]
        for undo in healed:
            with contextlib.suppress(Exception):  # one that cannot be put back must not keep the others
                undo()
        super().settle()

    def due(self, *kinds: str) -> list[Armed]:
        # A forked worker has the hooks too, but the box is its parent's.
        return [] if self.box.silent else super().due(*kinds)

    def due_once(self, kind: str, thing: object) -> list[Armed]:
        """As ``due``, of faults that were not triggered on this thing yet."""
        struck = self._struck.get(thing, [])
        found = self._begin([one for one in self._of(kind) if one not in struck])
        if found:
            self._struck[thing] = [*struck, *found]
        return found

    def lasting(self, kind: str) -> list[Armed]:
        """The faults of this kind that strike now, or have begun to before."""
        self._begin([one for one in self._of(kind) if not one.struck])
        return [one for one in self._of(kind) if one.struck]

    def unable(self, kind: str, why: str) -> None:
        """Note that faults of this kind cannot be triggered here."""
        for one in self._of(kind):
            if why not in one.troubles and len(one.troubles) < MAX_TROUBLES:
                one.troubles.append(why)

    def wanted(self, kind: str) -> bool:
        """Whether one of this kind is armed: what it needs is kept only then."""
        return bool(self._of(kind))

    def on_heal(self, armed: Armed, thing: Any, put_back: Callable[[Any], object]) -> None:
        """Have a setting put back when the fault is healed, if ``thing`` lives then."""
        reference = weakref.ref(thing)

        def undo() -> None:
            living = reference()
            if living is not None:
                put_back(living)

        self._settings.append((armed, undo))

    def _of(self, kind: str) -> list[Armed]:
        return [one for one in self.armed if one.fault.kind == kind]

    def _begin(self, candidates: list[Armed]) -> list[Armed]:
        found = [] if self.box.silent else [one for one in candidates if one.strikes(self.box.steps)]
        for one in found:
            one.note(self.box)
        return found
