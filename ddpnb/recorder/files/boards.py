"""Boards: files in which each member of a group announces something about its last calls, and reads what the others announced.

Per group there is one shared file with a row of words for each of the last ``ROWS`` collectives; a
rank writes its word (number and hash of the signature), then reads the row. Of any two ranks that
disagree, the later one sees it, since each writes before it reads. No communication, no second
collective: two memory accesses.

A call that the backend refuses gives its number back to the next one. While one rank has been refused
more often at a number than another, their calls are not compared: the other may be refused as well.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable
from contextlib import suppress

from ddpnb.recorder.files import shared_files
from ddpnb.recording.calls import Signature

ROWS = 512
_SEQ, _REFUSALS = 0xFFFFFF, 0xFF  # of a number, and of how often it was given back: both are in each word
_PAIR_ROWS, _MOST = 16, 64  # all_to_alls whose sizes are kept; members of a group whose pairs are compared
_SIZE, _SEQ_AT = (1 << 48) - 1, 48
_PLACE_ROWS = 32  # calls whose places are kept
PLACE = 512  # bytes of a place
_BOARD = "fence-"
_KNOWN = 1000  # signatures of all_to_alls whose sizes are kept


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
        self._words = memoryview(shared_files.mapped(shared_files.share(path, length), length)).cast("Q")
        self._path = path
        self._size = size
        self._me = me
        self._pairs: Pairs | None = None  # from the first all_to_all on
        self._refused: dict[int, int] = {}  # by number: how often this rank has given it back
        #: announce a call: ``announce(seq, agreed, exchange)`` returns the indices of members that announced a different
        #: one. ``exchange``: an all_to_all, of which the sizes of each pair of ranks must fit.
        self.announce = self._announcer()

    def _announcer(self) -> Callable[[int, int, Signature | None], list[int]]:
        """Every collective pays for it: what does not change is a local name."""
        words, refused, me, size = self._words, self._refused, self._me, self._size
        read = struct.Struct(f"<{size}Q").unpack_from
        nobody: list[int] = []

        def announce(seq: int, agreed: int, exchange: Signature | None = None) -> list[int]:
            start = seq % ROWS * size
            number = (seq & _SEQ) << 8
            if refused:
                number |= refused.get(seq, 0) & _REFUSALS
            word = number << 32 | agreed
            words[start + me] = word
            row = read(words, start * 8)
            if row.count(word) != size:
                for other in row:
                    if other != word and other >> 32 == number:
                        return [place for place, one in enumerate(row) if one != word and one >> 32 == number]
            return nobody if exchange is None else self._exchange(seq, exchange)

        return announce

    def _exchange(self, seq: int, exchange: Signature) -> list[int]:
        if self._size > _MOST:
            return []
        if self._pairs is None:
            try:
                self._pairs = Pairs(f"{self._path}_pairs", self._size, self._me)
            except OSError:  # no room: the diagnosis still compares them afterwards
                return []
        return self._pairs.announce(seq, exchange)

    def withdraw(self, seq: int) -> None:
        """Withdraw the announcement of ``seq``: the call was not made, and the next one has this number."""
        if len(self._refused) >= ROWS:
            self._refused.clear()
        self._refused[seq] = self._refused.get(seq, 0) + 1
        self._words[seq % ROWS * self._size + self._me] = 0
        if self._pairs is not None:
            self._pairs.withdraw(seq)


class Pairs:
    """What each member of a group sends to and expects from each other one in its last all_to_alls.

    Each writes what it sends and expects before it reads what the others do, as in ``Announcements``. A word holds the
    lower bits of the number of the call, and a size plus one: 0 says nothing.

    Args:
        path, size, me: as for ``Announcements``.

    Raises:
        OSError: no space for the file.
    """

    def __init__(self, path: str, size: int, me: int) -> None:
        self._size, self._me = size, me
        self._sizes: dict[int, tuple[Signature, tuple[int, ...]]] = {}  # by the id of a call's signature
        length = _PAIR_ROWS * size * 2 * size * 8
        self._words = memoryview(shared_files.mapped(shared_files.share(path, length), length)).cast("Q")

    def announce(self, seq: int, call: Signature) -> list[int]:
        """Announce all_to_all ``seq``; returns the indices of members whose sizes do not fit this one's."""
        size, me = self._size, self._me
        known = self._sizes.get(id(call))
        sizes = self._sizes_of(call) if known is None else known[1]
        if not sizes:
            return []
        mark = (seq & 0xFFFF) << _SEQ_AT
        mine = [mark | count for count in sizes]
        start, block = seq % _PAIR_ROWS * size * 2 * size, 2 * size
        for place, word in enumerate(mine, start + me * block):
            self._words[place] = word
        sent_to_me = self._words[start + me : start + size * block : block].tolist()
        expected_of_me = self._words[start + size + me : start + size * block : block].tolist()
        return [
            place
            for place, (theirs, wanted) in enumerate(zip(sent_to_me, expected_of_me, strict=True))
            if (theirs >> _SEQ_AT == mark >> _SEQ_AT and theirs & _SIZE and theirs != mine[size + place])
            or (wanted >> _SEQ_AT == mark >> _SEQ_AT and wanted & _SIZE and wanted != mine[place])
        ]

    def _sizes_of(self, call: Signature) -> tuple[int, ...]:
        """What is sent to and expected from each member, each plus one; empty where that is not known."""
        sent, expected = call.sends(self._size), call.expects(self._size)
        sizes: tuple[int, ...] = ()
        if sent is not None and expected is not None:
            sizes = tuple(min(count + 1, _SIZE) for count in (*sent, *expected))
        if len(self._sizes) < _KNOWN:
            self._sizes[id(call)] = call, sizes  # the call is kept, so that its id stays its own
        return sizes

    def withdraw(self, seq: int) -> None:
        """Withdraw what was announced for ``seq``: the call was not made."""
        start = seq % _PAIR_ROWS * self._size * 2 * self._size + self._me * 2 * self._size
        for place in range(start, start + 2 * self._size):
            self._words[place] = 0


class Places:
    """Where in the program each member of a group made its last calls, while somebody asks for it (``recorder.holds.parted``).

    Each writes a digest and what it is a digest of before it reads the digests of the others, as in ``Announcements``.

    Args:
        path, size, me: as for ``Announcements``.

    Raises:
        OSError: no space for the file.
    """

    def __init__(self, path: str, size: int, me: int) -> None:
        self._size, self._me = size, me
        self._texts_at = _PLACE_ROWS * size * 8
        length = self._texts_at + _PLACE_ROWS * size * PLACE
        self._memory = shared_files.mapped(shared_files.share(path, length), length)
        self._words = memoryview(self._memory)[: self._texts_at].cast("Q")

    def announce(self, seq: int, place: bytes) -> list[tuple[int, bytes]]:
        """Announce where call ``seq`` is made; returns the members that announced another place, each with that."""
        start = seq % _PLACE_ROWS * self._size
        mine = (seq & 0xFFFF) << _SEQ_AT | int.from_bytes(hashlib.blake2b(place, digest_size=6).digest(), "little")
        at = self._texts_at + (start + self._me) * PLACE
        place = place[:PLACE].ljust(PLACE, b"\0")
        self._memory[at : at + PLACE] = place
        self._words[start + self._me] = mine
        row = self._words[start : start + self._size].tolist()
        if row.count(mine) == self._size:
            return []
        found = [(member, self.of(seq, member)) for member, word in enumerate(row) if word != mine]
        # Meanwhile another one may have announced the same place.
        return [(member, theirs) for member, theirs in found if theirs and theirs != place]

    def of(self, seq: int, member: int) -> bytes:
        """Where a member made call ``seq``; empty where that is not known."""
        number = seq % _PLACE_ROWS * self._size + member
        before, at = self._words[number], self._texts_at + number * PLACE
        place = self._memory[at : at + PLACE]
        return place if before and before >> _SEQ_AT == seq & 0xFFFF and self._words[number] == before else b""

    def withdraw(self, seq: int) -> None:
        """Withdraw what was announced for ``seq``: the call was not made."""
        self._words[seq % _PLACE_ROWS * self._size + self._me] = 0


def board_path(folder: str, run: int, key: str) -> str:
    """The file of the group with identity ``key``; each run begins with new files."""
    return os.path.join(folder, f"{_BOARD}{run}-{hashlib.blake2b(key.encode(), digest_size=8).hexdigest()}")


def remove_boards(folder: str) -> None:
    """Begin all boards again: the program that announced on them has been replaced by another one."""
    for name in os.listdir(folder):
        if name.startswith(_BOARD):
            with suppress(OSError):
                os.unlink(os.path.join(folder, name))
