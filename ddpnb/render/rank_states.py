"""The states of ranks: their words, icons and colours."""

from __future__ import annotations

from typing import NamedTuple

from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import RankRecord


class Look(NamedTuple):
    """How a state is shown: in words, and with an icon of ``markup`` in the colour of a role."""

    words: str
    icon: str
    role: str


LOOKS = {
    RankState.COMPUTING: Look("computing", "compute", "ok"),
    RankState.WAITING: Look("waiting", "wait", "warning"),
    RankState.STARTING: Look("starting", "wait", "warning"),
    RankState.CREATING_GROUP: Look("creating a group", "wait", "warning"),
    RankState.BLOCKED: Look("blocked outside any collective", "stop", "warning"),
    RankState.HELD: Look("held", "hold", "note"),
    RankState.UNRESPONSIVE: Look("unresponsive", "frozen", "error"),
    RankState.ENDED: Look("ended", "done", "ok"),
    RankState.IDLE: Look("idle", "idle", "faint"),
    RankState.UNKNOWN: Look("unknown", "why", "faint"),
}
DEAD = Look("dead", "gone", "error")  # it has no process
FAILED = Look("failed", "gone", "error")  # a rank that ended with an error


def at_rest(record: RankRecord) -> str:
    """What a rank does on which nothing has run."""
    return "no process of it was seen" if record.process.activity == "gone" and not record.pid else "nothing is running"
