"""The path of a rank: in order, which way each decision of the program went, and the collectives between them.

A path is a row of words of 64 bits: the kind in the lowest 4 bits, then three numbers of 20 bits. Offsets are bytes of bytecode, as
``frame.f_lasti`` has them. A *site* is the offset, in the nearest recorded caller, of the instruction that calls; 0 is written
for none, else the offset plus 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

BITS = 20
MOST = (1 << BITS) - 1  # of an offset, a code, a text
KIND = 15  # the bits of the kind
A, B, C = 4, 4 + BITS, 4 + 2 * BITS  # where the three numbers of a word begin


class Kind(IntEnum):
    """What a word says. The numbers after each are its ``a``, ``b`` and ``c``."""

    BRANCH = 0  # offset of the jump, offset to which it went
    ENTER = 1  # code, site: a function begins
    RESUME = 2  # code, site: a generator or coroutine continues, or an exception is thrown into it
    RETURN = 3  # offset
    YIELD = 4  # offset
    UNWIND = 5  # offset, text (type of the exception): the function ends by it
    RAISE = 6  # offset, text: an exception is raised here, or passes through here from a call
    HANDLED = 7  # offset of the handler, text
    CALL = 8  # site, text (operation), text (name of the group); a NUMBER follows
    NUMBER = 9  # 40 bits: number of the call in its group (0: a message); 20 bits: peer + 1 (0: none)
    MARK = 10  # site, text: ``optimizer step``, ``iteration``
    # code, offset of a jump, or where exceptions are raised or handled: it is not recorded from here on. MOST as offset: the
    # whole function; its frames are no more, as a BASE behind it says.
    HOT = 11
    COLD = 12  # all is recorded again; a BASE follows
    BASE = 13  # how many FRAME words follow: the open frames of the thread, outermost first. It may come anywhere
    FRAME = 14  # code, offset at which it stands
    GAP = 15  # what came between is not known: a BASE follows


@dataclass(frozen=True, slots=True)
class Branch:
    """A conditional jump. Lines and columns are those of the expression that decides; ``names`` are what it reads, dotted."""

    offset: int
    line: int
    end_line: int
    column: int = 0
    end_column: int = 0
    loop: bool = False  # the jump of a ``for``, or of a ``while`` (it is reached again from behind it)
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions that run one after the other, from ``start`` to before ``end`` (offsets).

    ``next``: the start of the block that follows always; -1 where it ends with a decision, a return or a raise.
    ``after``: the start of its immediate post-dominator, the first block that is passed whatever it decides, unless an exception is raised; -1: the end of the
    function.
    ``loop``: where the innermost loop around it begins; -1: it is in none. With a ``break`` in the loop, ``after`` of a ``continue`` before it
    lies in the next iteration: then the beginning of the loop, if both sides come to it first, is where they meet.
    """

    start: int
    end: int
    next: int
    after: int
    loop: int = -1


@dataclass(frozen=True, slots=True)
class Code:
    """What a comparison needs of a function (or the body of a module).

    ``lines``: (offset, line) where each line begins. ``digest``: of its bytecode: ranks may have different versions of a file.
    ``user``: it is the user's own code, not that of a package between the user and torch.
    ``copies``: (start, end, start of the original): what follows two ways that end the function may be in its code twice.
    """

    file: str
    function: str
    line: int
    digest: str = ""
    user: bool = True
    blocks: tuple[Block, ...] = ()
    branches: tuple[Branch, ...] = ()
    lines: tuple[tuple[int, int], ...] = ()
    copies: tuple[tuple[int, int, int], ...] = ()

    def original(self, offset: int) -> int:
        """The offset itself, or that of which it is a copy."""
        return next((offset - start + first for start, end, first in self.copies if start <= offset < end), offset)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Path:
    """What a rank did in this run, as far back as its ring reaches.

    ``threads``: by name of the thread, its words; the main thread's first. ``codes`` and ``texts`` are what words refer to by
    number. ``forgotten``: words that are older than those here. ``missing``: why something was not recorded, in words.
    """

    threads: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    codes: tuple[Code, ...] = ()
    texts: tuple[str, ...] = ()
    forgotten: int = 0
    missing: str = ""


def word(kind: int, a: int = 0, b: int = 0, c: int = 0) -> int:
    """One word.

    Example:
        >>> word(Kind.BRANCH, 24, 60)
        1006633344
    """
    return kind | a << A | b << B | c << C


def number(seq: int, peer: int | None = None) -> int:
    """The word behind a CALL: the number of the call in its group, or the peer of a message."""
    return Kind.NUMBER | (seq & ((1 << 2 * BITS) - 1)) << A | (0 if peer is None else peer + 1 & MOST) << C
