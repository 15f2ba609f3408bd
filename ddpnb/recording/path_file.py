"""The file with the path of one rank, readable from any process of the host, also when the rank is dead.

Layout (little-endian): a header, a table, and a ring of words. The table has lines of JSON, in the order in which words refer to them:
``["code", number, file, function, line, digest, user, blocks, branches, lines, copies]`` (a later one of the same number replaces it),
``["text", text]``, ``["thread", name]`` and ``["missing", why]``. The ring has pieces: words of one thread, and behind them a word with
the number of the thread and how many they are, so that a reader finds them from the end on. The writer never waits for a reader: it
says what it is about to write, writes, and says that it has.

The ring has words as two integers of 32 bits, so that a decision is written as the two numbers that Python reports: (8 high bits of c, kind,
a), then (12 low bits of c, b).

Nothing in the file is trusted: sizes are bounded, and what does not fit together is left out.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from ddpnb.recording.names import UNDECODABLE, function_name, given_name
from ddpnb.recording.path import BITS, KIND, MOST, A, B, Block, Branch, C, Code, Kind, Path
from ddpnb.recording.shared import readable

MAGIC = b"ddpnbPT2"
FILE_SIZE = 4 << 20
HEADER_SIZE = 4096
TABLE_SIZE = 1 << 20
WORDS = (FILE_SIZE - HEADER_SIZE - TABLE_SIZE) // 8  # of the ring

# run, bytes of the table, words that are being written, words that have been written: each 8 bytes
HEAD = struct.Struct("<4Q")
HEAD_AT = 8
RUN, TABLE, BEGUN, WRITTEN = range(4)
TABLE_AT = HEADER_SIZE
RING_AT = TABLE_AT + TABLE_SIZE
THREAD = 32  # where the number of the thread begins in the word behind its words
PIECE = 1 << 14  # words of one piece at most
_MARGIN = PIECE  # of the oldest words, those that a copy from another host may have of later ones already
_LONGEST = 4096  # characters of the name of a file
_THREADS = 64

_BRANCH, _ENTER, _RESUME, _CALL, _NUMBER, _HOT, _COLD, _BASE, _FRAME, _GAP = map(
    int,
    (
        Kind.BRANCH, Kind.ENTER, Kind.RESUME, Kind.CALL, Kind.NUMBER, Kind.HOT, Kind.COLD, Kind.BASE, Kind.FRAME, Kind.GAP,
    ),
)  # fmt: skip
_ENDS = frozenset(map(int, (Kind.RETURN, Kind.YIELD, Kind.UNWIND)))
_CODED = frozenset((_ENTER, _RESUME, _HOT))  # words that begin with a code
_NAMED = frozenset(map(int, (Kind.UNWIND, Kind.RAISE, Kind.HANDLED, Kind.CALL, Kind.MARK)))  # that have a text behind


class PathReader:
    """Reads the path of one rank.

    Args:
        source: ``FileBytes``, or anything with the buffer protocol (an mmap, bytes).

    Raises:
        ValueError: the source is not a file with a path.
    """

    def __init__(self, source: Any) -> None:
        self._source = readable(source)
        if len(self._source) < FILE_SIZE or self._source.read(0, 8) != MAGIC:
            raise ValueError("not a path of ddpnb")
        self._last: tuple[tuple[int, ...], Path | None] = ((), None)

    def _head(self) -> tuple[int, ...]:
        return HEAD.unpack(self._source.read(HEAD_AT, HEAD.size))

    def read(self, run: int) -> Path | None:
        """What was recorded of this run; None if the file is of another run."""
        head = self._head()
        if head == self._last[0]:
            return self._last[1]
        ring = array("Q", self._source.read(RING_AT, 8 * WORDS))
        after = self._head()
        if head[RUN] != run or after[RUN] != run:
            return None
        threads, forgotten = _pieces(ring, head[WRITTEN], max(0, after[BEGUN] - WORDS))
        table = _Table(self._source.read(TABLE_AT, min(self._head()[TABLE], TABLE_SIZE)))
        found: dict[str, tuple[int, ...]] = {}
        for number in sorted(threads):
            words = sound(threads[number], table.codes, table.texts)
            name = table.threads[number] if number < len(table.threads) else f"thread {number}"
            found[name if name not in found else f"{name} ({number})"] = tuple(words)
        path = Path(found, tuple(table.codes), tuple(table.texts), forgotten, " ".join(table.missing))
        self._last = head, path
        return path


def _pieces(ring: Sequence[int], written: int, oldest: int) -> tuple[dict[int, array[int]], int]:
    """The words of each thread, from the last piece back; and how many words are older."""
    if oldest:
        oldest += _MARGIN
    pieces: dict[int, list[array[int]]] = {}
    at = written
    while at > oldest:
        behind = ring[(at - 1) % WORDS]
        thread, count = behind >> THREAD, behind & ((1 << THREAD) - 1)
        began = at - 1 - count
        if not 0 < count <= PIECE or thread >= _THREADS or began < oldest:
            break
        first, last = began % WORDS, (at - 1) % WORDS
        piece = array("Q", ring[first:last] if first <= last else [*ring[first:], *ring[:last]])
        pieces.setdefault(thread, []).append(piece)
        at = began
    found: dict[int, array[int]] = {}
    for thread, backward in pieces.items():
        found[thread] = array("Q")
        for piece in reversed(backward):
            found[thread].extend(piece)
    return {thread: unpacked(words) for thread, words in found.items()}, at


def packed(word: int) -> tuple[int, int]:
    """A word of a path as the two integers of the ring, whose order is that of the machine's bytes."""
    c = word >> C
    return (c >> 12) << 24 | (word & KIND) << BITS | (word >> A & MOST), (c & 0xFFF) << BITS | (word >> B & MOST)


def unpacked(words: array[int]) -> array[int]:
    """Words of the ring as words of a path: all at once, as one long integer."""
    whole = int.from_bytes(words.tobytes(), "little")

    def of(mask: int) -> int:
        return whole & int.from_bytes(mask.to_bytes(8, "little") * len(words), "little")

    moved = of(MOST) << A | of(KIND << BITS) >> BITS | of(0xFFFFFFFF << 32) >> 32 - B | of(0xFF << 24) << 32
    return array("Q", moved.to_bytes(8 * len(words), "little"))


def sound(words: Sequence[int], codes: Sequence[Code], texts: Sequence[str]) -> list[int]:
    """The words from the first BASE on, with a GAP instead of what does not fit together.

    From BASE to BASE the functions that have begun and ended must lead from the one stack to the other. Where they do not, as with
    greenlets, it is not known to which function the decisions between belong.
    """
    found: list[int] = []
    stack: list[int] = []
    kept = 0  # words that a BASE has confirmed
    known = lost = False  # there was a BASE; it follows a GAP
    at, size = 0, len(words)
    while at < size:
        one = words[at]
        kind = one & KIND
        at += 1
        if kind == _BRANCH:
            if known:
                found.append(one)
            continue
        first = one >> A & MOST
        if kind == _BASE:
            frames = words[at : at + first]
            if len(frames) < first or any(frame & KIND != _FRAME for frame in frames):
                known = False
                continue
            at += first
            opened = [frame >> A & MOST for frame in frames]
            if any(code >= len(codes) for code in opened):
                known = False
                continue
            if found and opened != stack and not lost:
                del found[kept:]
                found.append(_GAP)
            found.append(one)
            found += frames
            stack, kept, known, lost = opened, len(found), True, False
            continue
        if not known or kind == _FRAME:
            continue
        if (kind in _CODED and first >= len(codes)) or (kind in _NAMED and one >> B & MOST >= len(texts)):
            found.append(_GAP)
            known, lost = False, True
            continue
        if kind in (_ENTER, _RESUME):
            stack.append(first)
        elif kind in _ENDS:
            if not stack:
                del found[kept:]
                found.append(_GAP)
                known, lost = False, True
                continue
            stack.pop()
        elif kind == _HOT and one >> B & MOST == MOST:
            stack = [code for code in stack if code != first]
        elif kind == _COLD:
            lost = True  # frames that were not recorded are there again
        elif kind == _GAP:
            known, lost = False, True
        elif kind == _CALL:
            if at >= size or words[at] & KIND != _NUMBER or one >> B + BITS >= len(texts):
                found.append(_GAP)
                known, lost = False, True
                continue
            found += (one, words[at])
            at += 1
            continue
        elif kind == _NUMBER:
            continue
        found.append(one)
    return found


def beginning(words: tuple[int, ...]) -> tuple[int, ...]:
    """The words from the first BASE on."""
    first = next((at for at, one in enumerate(words) if one & KIND == Kind.BASE), len(words))
    return words[first:]


class _Table:
    """What words refer to."""

    def __init__(self, data: bytes) -> None:
        self.codes: list[Code] = []
        self.texts: list[str] = [""]
        self.threads: list[str] = []
        self.missing: list[str] = []
        for line in data.split(b"\n"):
            try:
                what, *rest = json.loads(line)
                if what == "text":
                    self.texts.append(given_name(rest[0]))
                elif what == "thread":
                    self.threads.append(given_name(rest[0]))
                elif what == "missing":
                    self.missing.append(given_name(rest[0]))
                elif what == "code":
                    self._code(*rest)
            except UNDECODABLE:
                continue

    def _code(
        self,
        number: int,
        file: str,
        function: str,
        line: int,
        digest: str,
        user: bool,
        blocks: list[list[int]],
        branches: list[list[Any]],
        lines: list[list[int]],
        copies: Iterable[list[int]] = (),
    ) -> None:
        code = Code(
            str(file)[:_LONGEST],
            function_name(function),
            _integer(line),
            given_name(digest),
            user is True,
            tuple(Block(*map(_integer, block)) for block in blocks),
            tuple(
                Branch(*map(_integer, branch[:5]), loop=branch[5] is True, names=tuple(map(given_name, branch[6])))
                for branch in branches
            ),
            tuple((_integer(offset), _integer(line)) for offset, line in lines),
            tuple((_integer(start), _integer(end), _integer(first)) for start, end, first in copies),
        )
        if number == len(self.codes):
            self.codes.append(code)
        elif 0 <= number < len(self.codes):
            self.codes[number] = code


def _integer(value: Any) -> int:
    if type(value) is not int or not -MOST <= value <= 1 << 31:
        raise TypeError("not a number")
    return value
