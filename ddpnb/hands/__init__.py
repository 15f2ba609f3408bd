"""Hands on live ranks: hold and step them, look into their frames, break and heal them, start and release them."""

from __future__ import annotations

from ddpnb.hands.looking import Looks
from ddpnb.hands.starting import Starts


class Hands(Starts, Looks):
    """What ``World`` can do to ranks that live."""
