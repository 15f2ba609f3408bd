"""The fence compares a call with those that peers on this host announced (``files.boards``), before the backend gets it."""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

import torch.distributed as dist

from ddpnb.recording.blackbox import BoxReader
from ddpnb.recording.calls import Call, listed
from ddpnb.recording.shared import FileBytes

if TYPE_CHECKING:
    from ddpnb.recorder.collectives.groups import KnownGroup


def disagreement(memory: mmap.mmap, folder: str, group: KnownGroup, seq: int, number: int, peers: list[int]) -> str:
    """The calls of this rank and of its peers at one sequence number of a group, as text.

    Args:
        memory: this rank's box, in which the call has ``number``.
        folder: where the peers' boxes lie.
        group: the group.
        seq: the sequence number.
        peers: the ranks that announced a different call.
    """
    mine = next((c for c in BoxReader(memory).calls(64) if c.number == number), None)
    lines = []
    for rank in peers[:8]:
        theirs = peer_call(folder, rank, group.key, seq)
        if theirs is not None:
            lines.append(f"rank {rank} called {_made(theirs)} {theirs.site.placed}")
    me = f"rank {dist.get_rank()} called {_made(mine)} {mine.site.placed}" if mine else "this rank"
    return f"collective mismatch at seq {seq}, group {list(group.ranks)}: " + "; ".join([me, *lines])


def _made(call: Call) -> str:
    """The call as text; of an all_to_all also what it exchanges."""
    size = len(call.group.ranks)
    sent, expected = call.signature.sends(size), call.signature.expects(size)
    if call.signature.out_shapes is None or sent is None or expected is None:
        return str(call.signature)
    return f"{call.signature}, sending {listed(sent)} and expecting {listed(expected)} elements"


def peer_call(folder: str, rank: int, key: str, seq: int) -> Call | None:
    """A call of another rank, from its box: in the group with identity ``key``, with number ``seq``."""
    try:
        calls = BoxReader(FileBytes(os.path.join(folder, f"rank{rank}.box"))).calls(1024)
    except (OSError, ValueError):
        return None
    return next((c for c in reversed(calls) if c.seq == seq and c.group.key == key), None)
