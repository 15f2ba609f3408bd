"""What a launcher calls on an engine. It imports no torch, so that the launcher can name these functions."""

from __future__ import annotations

from typing import Any


def run(order: dict[str, Any], payload: bytes | None = None) -> Any:
    """What a launcher calls on an engine: see ``recorder.rank.Rank.run``."""
    from ddpnb.recorder import rank

    return rank.start().run(order, payload)


def clean() -> None:
    """What a launcher calls on an engine whose last run failed: see ``recorder.rank.Rank.clean``."""
    from ddpnb.recorder import rank

    rank.start().clean()


def start_up(order: dict[str, Any]) -> dict[str, Any]:
    """What a launcher calls on an engine for each step of start-up: see ``recorder.rank.Rank.start_up``."""
    from ddpnb.recorder import rank

    return rank.start().start_up(order)


def measure(order: dict[str, Any]) -> dict[str, Any]:
    """What the doctor calls on an engine after start-up: see ``recorder.process.measuring``."""
    from ddpnb.recorder import rank

    return rank.start().measure(order)
