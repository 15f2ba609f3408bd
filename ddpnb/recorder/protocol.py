"""What a rank and its launcher agree on: names of variables and messages, and the entry of a run.

Standard library only, so that a launcher can import it without torch.
"""

from __future__ import annotations

from typing import Any

REQUEST, REPLY = "ddpnb_request", "ddpnb_reply"  # on the engine's control channel
FOLDER, PARENT, DEVICE = "DDPNB_FOLDER", "DDPNB_PARENT", "DDPNB_DEVICE"
VALUES = 1 << 20  # elements of a tensor that are sent at most, to say by how much it differs
NAMESPACE = "ddpnb namespace"  # in the pickle of a notebook's function: the variables of the cells on the rank
BACKEND = "DDPNB_BACKEND"  # the backend that a script gets, whichever it asks for


def run(order: dict[str, Any], payload: bytes | None = None) -> Any:
    """What a launcher calls on an engine: see ``recorder.rank.Rank.run``."""
    from ddpnb.recorder import rank

    return rank.run(order, payload)


def clean() -> None:
    """What a launcher calls on an engine whose last run failed: see ``recorder.rank.Rank.clean``."""
    from ddpnb.recorder import rank

    rank.clean()


def start_up(order: dict[str, Any]) -> dict[str, Any]:
    """What a launcher calls on an engine for each step of start-up: see ``recorder.rank.Rank.start_up``."""
    from ddpnb.recorder import rank

    return rank.start_up(order)
