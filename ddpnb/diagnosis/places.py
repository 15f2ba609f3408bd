"""Where a finding points: only at lines that were recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from ddpnb.model.calls import NO_SITE, Site


class Placed(Protocol):
    """Something with a place, such as an event."""

    @property
    def site(self) -> Site: ...


def known(places: Iterable[tuple[int, Site]]) -> tuple[tuple[int, Site], ...]:
    return tuple((rank, site) for rank, site in places if site != NO_SITE)


def where(placed: Mapping[int, Placed], ranks: Iterable[int]) -> tuple[tuple[int, Site], ...]:
    """The places of these ranks, in this order, of those that have one."""
    return known((rank, placed[rank].site) for rank in ranks if rank in placed)
