"""Hosts of which nothing is heard."""

from __future__ import annotations

from typing import Any, cast

from ddpnb.recording.names import one_line
from ddpnb.recording.recording import Recording

_LONGEST = 80  # characters of the name of a host


def silent_hosts(recording: Recording) -> dict[str, list[int]]:
    """Hosts that did not answer when the Recording was taken, with their ranks."""
    told = recording.host.get("silent_hosts")
    if not isinstance(told, dict):
        return {}
    return {
        one_line(str(name)[:_LONGEST]): [rank for rank in cast("list[Any]", ranks) if rank in recording.ranks]
        for name, ranks in cast("dict[Any, Any]", told).items()
        if isinstance(ranks, list)
    }
