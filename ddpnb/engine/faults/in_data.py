"""Faults in the data and its loaders."""

from __future__ import annotations

from ddpnb.engine.faults.struck import Strikes


class InData(Strikes):
    """The faults that strike data loaders."""

    def install(self) -> None:
        pass
