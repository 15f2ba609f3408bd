"""Where a finding points: only at lines that were recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from ddpnb.recording.calls import NO_SITE, Site


class Placed(Protocol):
    """Something with a place, such as an event."""

    @property
    def site(self) -> Site: ...


class Timed(Placed, Protocol):
    """Something with a place and a time."""

    @property
    def began_ns(self) -> int: ...


def known(places: Iterable[tuple[int, Site]]) -> tuple[tuple[int, Site], ...]:
    return tuple((rank, site) for rank, site in places if site != NO_SITE)


def where(placed: Mapping[int, Placed], ranks: Iterable[int]) -> tuple[tuple[int, Site], ...]:
    """The places of these ranks, in this order, of those that have one."""
    return known((rank, placed[rank].site) for rank in ranks if rank in placed)


def moments(placed: Mapping[int, Timed]) -> tuple[tuple[int, int], ...]:
    """When each of these ranks was there (``Finding.moments``); nothing if one of the times is not known."""
    times = tuple((rank, one.began_ns) for rank, one in sorted(placed.items()))
    return times if all(at > 0 for _, at in times) else ()
