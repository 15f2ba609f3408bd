"""Control of live ranks: run code, hold and step, inspect, inject faults, release and restart."""

from __future__ import annotations

from ddpnb.control.inspection import Looks
from ddpnb.control.runs import Runs


class Hands(Runs, Looks):
    """The methods of ``World`` that control live ranks."""
