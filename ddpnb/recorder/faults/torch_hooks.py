"""Faults that strike functions of torch: hooks that are in place while one is armed."""

from __future__ import annotations

from ddpnb.recorder.blackbox import BlackBox
from ddpnb.recorder.faults.armed import Armed
from ddpnb.recorder.hooks import Hooks


class Strikes(Hooks):
    """The faults of one place; sub-classes put their hooks in ``install``."""

    def __init__(self, box: BlackBox, rank: int) -> None:
        super().__init__(box)
        self.rank = rank
        self.armed: list[Armed] = []
        self._installed = False

    def settle(self) -> None:
        """Put the hooks in place when something is armed, and take them away when nothing is."""
        if self.armed and not self._installed:
            self._installed = True
            self.install()
        elif not self.armed and self._installed:
            self._installed = False
            self.remove()

    def due(self, *kinds: str) -> list[Armed]:
        """The faults of these kinds that strike now; counts them, and says so in the box."""
        found = [one for one in self.armed if one.fault.kind in kinds and one.strikes(self.box.steps)]
        for one in found:
            one.note(self.box)
        return found
