"""The fence compares a call with those that peers on this host announced, before the backend gets it.

Per group there is one shared file with a row of words for each of the last ``ROWS`` collectives; a
rank writes its word (number and hash of the signature), then reads the row. Of any two ranks that
disagree, the later one sees it, since each writes before it reads. No communication, no second
collective: two memory accesses.

A call that the backend refuses gives its number back to the next one. While one rank has been refused
more often at a number than another, their calls are not compared: the other may be refused as well.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from typing import TYPE_CHECKING

import torch.distributed as dist

from ddpnb.model.blackbox import BoxReader
from ddpnb.model.calls import Call
from ddpnb.model.shared import FileBytes
from ddpnb.recorder import shared_files

if TYPE_CHECKING:
    from ddpnb.recorder.groups import KnownGroup

ROWS = 512
_SEQ, _REFUSALS = 0xFFFFFF, 0xFF  # of a number, and of how often it was given back: both are in each word


class Announcements:
    """The announcements of one group.

    Args:
        path: the file that the members share; the first one creates it.
        size: number of members.
        me: index of this rank in the group.

    Raises:
        OSError: no space for the file.
    """

    def __init__(self, path: str, size: int, me: int) -> None:
        length = ROWS * size * 8
        fd = shared_files.share(path, length)
        try:
            self._memory = mmap.mmap(fd, length)
        finally:
            os.close(fd)
        self._words = memoryview(self._memory).cast("Q")
        self._size = size
        self._me = me
        self._refused: dict[int, int] = {}  # by number: how often this rank has given it back

    def announce(self, seq: int, agreed: int) -> list[int]:
        """Announce collective ``seq``; returns the indices of members that announced a different one."""
        start = seq % ROWS * self._size
        seq = (seq & _SEQ) << 8 | (self._refused.get(seq, 0) & _REFUSALS if self._refused else 0)
        word = seq << 32 | agreed
        words = self._words
        words[start + self._me] = word
        row = words[start : start + self._size].tolist()
        if row.count(word) == self._size:
            return []
        if not [other for other in row if other >> 32 == seq and other != word]:
            return []
        return [place for place, other in enumerate(row) if other >> 32 == seq and other != word]

    def withdraw(self, seq: int) -> None:
        """Withdraw the announcement of ``seq``: the call was not made, and the next one has this number."""
        if len(self._refused) >= ROWS:
            self._refused.clear()
        self._refused[seq] = self._refused.get(seq, 0) + 1
        self._words[seq % ROWS * self._size + self._me] = 0


def board_path(folder: str, run: int, key: str) -> str:
    """The file of the group with identity ``key``; each run begins with new files."""
    return os.path.join(folder, f"fence-{run}-{hashlib.blake2b(key.encode(), digest_size=8).hexdigest()}")


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
        theirs = _peer_call(folder, rank, group.key, seq)
        if theirs is not None:
            lines.append(f"rank {rank} called {theirs.signature} at {theirs.site}")
    me = f"rank {dist.get_rank()} called {mine.signature} at {mine.site}" if mine else "this rank"
    return f"collective mismatch at seq {seq}, group {list(group.ranks)}: " + "; ".join([me, *lines])


def _peer_call(folder: str, rank: int, key: str, seq: int) -> Call | None:
    try:
        calls = BoxReader(FileBytes(os.path.join(folder, f"rank{rank}.box"))).calls(1024)
    except (OSError, ValueError):
        return None
    return next((c for c in reversed(calls) if c.seq == seq and c.group.key == key), None)
