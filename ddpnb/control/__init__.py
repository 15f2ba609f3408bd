"""Hands on live ranks: run scripts on them, hold and step them, look at them, break and heal them, release and replace them."""

from __future__ import annotations

from ddpnb.control.inspection import Looks
from ddpnb.control.runs import Runs


class Hands(Runs, Looks):
    """What ``World`` can do to ranks that live."""
