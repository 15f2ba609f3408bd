"""What a comparison asks of the code of a function: blocks in a row, where ways join again, lines."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from itertools import pairwise, takewhile

from ddpnb.recording.calls import NO_SITE, Site
from ddpnb.recording.path import Branch, Code

END = -1  # behind the last block of a function


class Shape:
    """The control flow of one function. Blocks are numbers, in the order of their offsets; ``END`` is the end of the function.

    What a rank says of its code is not trusted: a circle of post-dominators ends where it closes.
    """

    def __init__(self, code: Code) -> None:
        self.code = code
        blocks = sorted(code.blocks, key=lambda block: block.start)
        self.starts = [block.start for block in blocks]
        number = {start: place for place, start in enumerate(self.starts)}
        self.next = [number.get(block.next, END) for block in blocks]
        self.after = [number.get(block.after, END) for block in blocks]
        self.branches = {branch.offset: branch for branch in code.branches}
        self._break_circles()
        self._heads: dict[tuple[int, bool], tuple[int, ...]] = {}
        self._deciding: dict[int, bool] = {}
        self._chains: dict[int, tuple[int, ...]] = {}
        self._loops: dict[int, tuple[int, int]] = {}
        for block in blocks:
            if block.loop >= 0:
                first, last = self._loops.get(block.loop, (block.start, block.end))
                self._loops[block.loop] = min(first, block.start), max(last, block.end)
        self._loop = [block.loop for block in blocks]
        self._unite()
        self._line_starts = [offset for offset, _ in code.lines]

    def _break_circles(self) -> None:
        seen: dict[int, int] = {}
        for block in range(len(self.after)):
            at = block
            while at != END and at not in seen:
                seen[at] = block
                following = self.after[at]
                if following != END and seen.get(following) == block:
                    self.after[at] = following = END
                at = following

    def block(self, offset: int) -> int:
        return bisect_right(self.starts, offset) - 1

    def chain(self, block: int) -> tuple[int, ...]:
        """The blocks that run one after the other from here, to the next decision or exit."""
        found = self._chains.get(block)
        if found is None:
            way: dict[int, None] = {}
            at = block
            while at != END and at not in way:
                way[at] = None
                at = self.next[at]
            found = self._chains[block] = tuple(way)
        return found

    def behind(self, block: int) -> int:
        """The first block that always follows."""
        return self.after[block] if block != END else END

    def passed(self, block: int) -> frozenset[int]:
        """This block and those that always follow."""
        found: list[int] = []
        while block != END:
            found.append(block)
            block = self.after[block]
        return frozenset(found)

    def loop(self, offset: int) -> tuple[int, int]:
        """Where the loop around this jump begins and ends; nothing where there is none."""
        block = self.block(offset)
        return self._loops.get(self._loop[block], (0, 0)) if block != END else (0, 0)

    def _unite(self) -> None:
        """A ``while`` with a ``continue`` has two beginnings, of which neither lies in the other: it is one loop."""
        heads = sorted(self._loops)
        for one, other in pairwise(heads):
            (first, end), (begins, ends) = self._loops[one], self._loops[other]
            if first < begins < end < ends:
                self._loops[one] = self._loops[other] = first, ends

    def heads(self, offset: int, *, outer: bool = False) -> tuple[int, ...]:
        """The blocks with which the loops around an offset begin, the innermost first; ``outer``: not those of the innermost."""
        known = self._heads.get((offset, outer))
        if known is None:
            around = sorted((end - first, head) for head, (first, end) in self._loops.items() if first <= offset < end)
            least = around[0][0] if around and outer else -1
            known = self._heads[offset, outer] = tuple(self.block(head) for size, head in around if size != least)
        return known

    def enters(self, offset: int, to: int) -> bool:
        """Whether a jump that decides on another iteration decides for it, if it leads there."""
        first, end = self.loop(offset)
        block = self.block(to)
        begins, ends = self._loops.get(self._loop[block], (-1, -1)) if block != END else (-1, -1)
        return first <= begins and 0 < ends <= end

    def leaves(self, offset: int, to: int) -> bool:
        """Whether a jump within a loop leads out of it, as an ``if`` before a ``break`` does."""
        first, end = self.loop(offset)
        inside = (self._loops.get(self._loop[block], (-1, -1)) for block in self.chain(self.block(to)))
        return end > 0 and not any(first <= begins and ends <= end for begins, ends in inside)

    def loops(self, offset: int) -> bool:
        """Whether this jump decides on another iteration, not an ``if`` before a ``break``. Both tests of one ``while`` do."""
        known = self._deciding.get(offset)
        if known is None:
            branch, block = self.branches.get(offset), self.block(offset)
            twins = [
                one for one in self.branches.values() if branch is not None and one != branch and _same(one, branch)
            ]
            if branch is None or block == END:
                known = False
            elif any(one.loop for one in (branch, *twins)) and twins:
                known = True
            else:  # of a ``for``: the block begins with it
                known = branch.loop and self.starts[block] in (offset, self._loop[block]) and not self._inverted(block)
            self._deciding[offset] = known
        return known

    def _inverted(self, block: int) -> bool:
        """Whether the loop that begins with this block is tested at its end."""
        if self.starts[block] in self.branches:
            return False
        inside = [one for one in self.branches.values() if one.loop and self.loop(one.offset)[0] == self._loop[block]]
        return any(one != other and _same(one, other) for one in inside for other in self.branches.values())

    def line(self, offset: int) -> int:
        place = bisect_right(self._line_starts, offset) - 1
        return self.code.lines[place][1] if place >= 0 else self.code.line

    def lines_from(self, offset: int) -> list[int]:
        """The line of an offset, and those that begin behind it in its block."""
        following = self.block(offset) + 1
        end = self.starts[following] if following < len(self.starts) else math.inf
        begun = self.code.lines[bisect_right(self._line_starts, offset) :]
        return [self.line(offset), *(line for start, line in takewhile(lambda one: one[0] < end, begun))]

    def handler(self, offset: int) -> Site:
        """The line of a handler, which begins with instructions of no line."""
        place = min(bisect_left(self._line_starts, offset), len(self._line_starts) - 1)
        line = self.code.lines[place][1] if place >= 0 else self.code.line
        return Site(self.code.file, line, self.code.function)

    def site(self, offset: int) -> Site:
        branch = self.branches.get(offset)
        line = branch.line if branch is not None else self.line(offset)
        return Site(self.code.file, line, self.code.function) if self.code.file else NO_SITE


def _same(one: Branch, other: Branch) -> bool:
    return (one.line, one.column, one.end_line, one.end_column) == (
        other.line,
        other.column,
        other.end_line,
        other.end_column,
    )
