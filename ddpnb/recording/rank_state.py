"""What a rank is doing. The words and colours that readers see are in ``render/rank_states.py``."""

from __future__ import annotations

from enum import StrEnum, auto


class RankState(StrEnum):
    """What a rank is doing at one moment.

    Example:
        >>> [rank.rank for rank in world.status().ranks if rank.state == "held"]
    """

    COMPUTING = auto()
    WAITING = auto()  # in a collective, a send or a receive
    STARTING = auto()  # in init_process_group
    CREATING_GROUP = auto()  # in new_group
    BLOCKED = auto()  # outside any collective
    HELD = auto()  # at a breakpoint
    UNRESPONSIVE = auto()  # stopped, or native code holds the GIL
    ENDED = auto()  # its script: finished, raised, exited, or the process died
    IDLE = auto()  # nothing has run on it
    UNKNOWN = auto()
