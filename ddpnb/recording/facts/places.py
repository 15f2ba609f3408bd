"""What has a place, and perhaps a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ddpnb.recording.calls import Site


class Placed(Protocol):
    """Something with a place, such as an event."""

    @property
    def site(self) -> Site: ...


class Timed(Placed, Protocol):
    """Something with a place and a time."""

    @property
    def began_ns(self) -> int: ...


def moments(placed: Mapping[int, Timed]) -> tuple[tuple[int, int], ...]:
    """When each of these ranks was there (``Finding.moments``); nothing if one of the times is not known."""
    times = tuple((rank, one.began_ns) for rank, one in sorted(placed.items()))
    return times if all(at > 0 for _, at in times) else ()
