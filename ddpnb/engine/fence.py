"""The fence: compares a call with what the peers on this host have announced, before it goes down.

Per group there is one shared file with a row of words for each of the last ``ROWS`` collectives; a
rank writes its word (number and hash of the signature), then reads the row. Of any two ranks that
disagree, the later one sees it, since each writes before it reads. No communication, no second
collective: two memory accesses.
"""

from __future__ import annotations

import hashlib
import mmap
import os

ROWS = 512
_SEQ = 0xFFFFFFFF


class Board:
    """The announcements of one group.

    Args:
        path: the file that the members share; made by whoever comes first.
        size: number of members.
        me: this rank's place among them.
    """

    def __init__(self, path: str, size: int, me: int) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            length = ROWS * size * 8
            os.ftruncate(fd, length)
            self._memory = mmap.mmap(fd, length)
        finally:
            os.close(fd)
        self._words = memoryview(self._memory).cast("Q")
        self._size = size
        self._me = me

    def announce(self, seq: int, agreed: int) -> list[int]:
        """Announce collective ``seq``; the places of the members that announced another one."""
        start = seq % ROWS * self._size
        seq &= _SEQ
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
        """Take the announcement of ``seq`` back: the call was never made."""
        self._words[seq % ROWS * self._size + self._me] = 0


def board_path(folder: str, run: int, key: str) -> str:
    """The file of the group with identity ``key``; each run begins with fresh ones."""
    return os.path.join(folder, f"fence-{run}-{hashlib.blake2b(key.encode(), digest_size=8).hexdigest()}")
