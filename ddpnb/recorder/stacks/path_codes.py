"""Describes the code of a function for paths: its decisions, where their regions end, and its lines, from the bytecode.

Regions end at the immediate post-dominator of a decision (Ferrante, Ottenstein, Warren: The program dependence graph, 1987). It is
computed as in Cooper, Harvey, Kennedy: A simple, fast dominance algorithm (2001). Edges to handlers of exceptions are left out: a handler is
not on the usual way. Known for CPython 3.12 to 3.14: jumps are relative, and behind an instruction its caches have the opcode 0.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from types import CodeType
from typing import NamedTuple
from zlib import crc32

from ddpnb.recording.path import MOST, Block, Branch, Code

EXIT = -1
_CACHE, _EXTENDED = 0, dis.EXTENDED_ARG
_MOST_NAMES = 8  # of one decision
_LONGEST = 200  # characters of a name
_SEND = dis.opmap.get("SEND", -1)
_FOR = dis.opmap["FOR_ITER"]
_CONDITIONAL = {dis.opmap[name] for name in dis.opmap if name.startswith("POP_JUMP_IF_")} | {_FOR}
_BACKWARD = {op for name, op in dis.opmap.items() if name.startswith("JUMP_BACKWARD")}
_JUMPS = _BACKWARD | {op for name, op in dis.opmap.items() if name == "JUMP_FORWARD"}
_ENDS = {
    op
    for name, op in dis.opmap.items()
    if name in ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT")
}
_RAISES = {op for name, op in dis.opmap.items() if name in ("RAISE_VARARGS", "RERAISE")}
_FAST = {op for name, op in dis.opmap.items() if name in ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW")}
_FAST_PAIR = {op for name, op in dis.opmap.items() if name.startswith("LOAD_FAST_") and name.count("LOAD_FAST") == 2}
_FREE = {op for name, op in dis.opmap.items() if name in ("LOAD_DEREF", "LOAD_CLASSDEREF")}
_MATCHES = {op for name, op in dis.opmap.items() if name in ("CHECK_EXC_MATCH", "CHECK_EG_MATCH")}  # an ``except``
_CALLS = {op for name, op in dis.opmap.items() if name.startswith("CALL")}
_COPIED = 4  # instructions: the compiler copies no longer ends
_NAME = dis.opmap.get("LOAD_NAME", -1)
_GLOBAL, _ATTRIBUTE = dis.opmap.get("LOAD_GLOBAL", -1), dis.opmap.get("LOAD_ATTR", -1)
_NULL = dis.opmap.get("PUSH_NULL", -1)

Position = tuple[int | None, int | None, int | None, int | None]  # line, last line, column, last column


class _Instruction(NamedTuple):
    offset: int
    op: int
    arg: int
    next: int  # offset of the instruction behind it

    @property
    def target(self) -> int:
        return self.next - 2 * self.arg if self.op in _BACKWARD else self.next + 2 * self.arg


def described(code: CodeType, *, user: bool) -> Code:
    """What a comparison of paths needs of a function.

    Args:
        code: its code.
        user: whether it is the user's own.

    Returns:
        Its Code. ``blocks`` is empty where it is too long to be described: more than a MiB of bytecode.

    Example:
        >>> described(train.__code__, user=True).branches[0].line
        33
    """
    data = code.co_code
    digest = f"{crc32(repr(code.co_names).encode('utf-8', 'replace'), crc32(data)):08x}"
    whole = Code(code.co_filename, code.co_qualname, code.co_firstlineno, digest, user)
    if len(data) > MOST:
        return whole
    instructions = _instructions(data)
    ways = _ways(instructions, _handlers(code.co_exceptiontable))
    copies = _copies(code, instructions, ways)
    if copies:
        starts = [start for start, _, first in copies for start in (start, first)]
        ways = _united(_ways(instructions, {*_handlers(code.co_exceptiontable), *starts}), copies)
    after = _post_dominators(_usual(ways))
    loops = _loops(ways)
    blocks = tuple(
        Block(start, end, ways.follows[start], after[start], loops.get(start, EXIT))
        for start, end in ways.blocks.items()
    )
    return Code(
        whole.file,
        whole.function,
        whole.line,
        digest,
        user,
        blocks,
        _branches(code, instructions, ways, loops),
        _lines(code),
        copies,
    )


class Graph(NamedTuple):
    """Which blocks of a function, by where they begin, run after which.

    ``loops``: the blocks of each loop, by where it begins. ``heads``: for a jump back to the key, the loop that begins again.
    ``copies``: a test of a ``while`` stands at its beginning and at its end; of an offset in the latter, the same in the
    former, and the loop.
    """

    starts: tuple[int, ...]
    successors: Mapping[int, Sequence[int]]
    after: Mapping[int, int]
    loops: Mapping[int, set[int]]
    heads: Mapping[int, int]
    copies: Mapping[int, tuple[int, int]]


def graph(code: CodeType) -> Graph:
    """The blocks and loops of a function, for somebody who follows it while it runs."""
    instructions = _instructions(code.co_code)
    ways = _ways(instructions, _handlers(code.co_exceptiontable))
    loops, positions = _members(ways), [*code.co_positions()]
    places = {one.offset: (one.op, positions[one.offset // 2]) for one in instructions}
    heads, copies = {head: head for head in loops}, dict[int, tuple[int, int]]()
    for inner, outer in (_twice_tested(ways, _loops(ways)) | _tested_at_end(instructions, places, loops)).items():
        if inner in loops and outer in loops:
            loops[outer] |= loops.pop(inner)
            heads[inner] = outer
            first = {place: offset for offset, place in places.items() if outer <= offset < inner}
            last = ((offset, first.get(place)) for offset, place in places.items() if offset >= inner)
            copies |= {offset: (same, outer) for offset, same in last if same is not None}
    return Graph(tuple(sorted(ways.blocks)), ways.successors, _post_dominators(_usual(ways)), loops, heads, copies)


def _tested_at_end(
    instructions: Sequence[_Instruction], places: Mapping[int, tuple[int, Position]], loops: Iterable[int]
) -> dict[int, int]:
    """The same as ``_twice_tested``, by a decision at the end that stands at the beginning too: also of tests that decide twice."""
    found: dict[int, int] = {}
    for before, one in pairwise(instructions):
        if one.op in _BACKWARD and before.op in _CONDITIONAL:
            inner, place = one.target, places[before.offset]
            for outer in loops:
                if outer < inner and any(outer <= at < inner for at, same in places.items() if same == place):
                    found[inner] = outer
    return found


def _instructions(data: bytes) -> list[_Instruction]:
    found: list[_Instruction] = []
    at, size = 0, len(data)
    while at < size:
        began, arg = at, data[at + 1]
        while data[at] == _EXTENDED:
            at += 2
            arg = arg << 8 | data[at + 1]
        op = data[at]
        # An event names the offset of the jump itself, behind its extended arguments.
        offset = at
        at += 2
        while at < size and data[at] == _CACHE:
            at += 2
        if began != offset:
            found.append(_Instruction(began, _EXTENDED, 0, offset))
        found.append(_Instruction(offset, op, arg, at))
    return found


def exception_table(table: bytes) -> list[tuple[int, int, int]]:
    """For each part of the code with a handler: where it begins, where it ends, and where the handler begins.

    Of four numbers for each, the first three, in units of two bytes: beginning, length, handler.
    """
    numbers: list[int] = []
    value = 0
    for byte in table:
        value = value << 6 | byte & 63
        if not byte & 64:
            numbers.append(2 * value)
            value = 0
    parts = zip(numbers[::4], numbers[1::4], numbers[2::4], strict=False)
    return [(start, start + length, target) for start, length, target in parts]


def _handlers(table: bytes) -> set[int]:
    """Where handlers of exceptions begin."""
    return {target for _, _, target in exception_table(table)}


class _Ways(NamedTuple):
    """The control flow graph. By the start of each block: its end, its successors, the one that follows always (-1: none)."""

    blocks: Mapping[int, int]
    successors: Mapping[int, Sequence[int]]
    follows: Mapping[int, int]
    backward: Sequence[tuple[int, int]]  # (block with the jump, where it jumps to)
    raising: Sequence[int]  # blocks that end by an exception


def _ways(instructions: Sequence[_Instruction], handlers: Iterable[int]) -> _Ways:
    starts = {0, *handlers}
    for one in instructions:
        if one.op in _JUMPS or one.op in _CONDITIONAL or one.op == _SEND:
            starts.update((one.target, one.next))
        elif one.op in _ENDS:
            starts.add(one.next)
    blocks: dict[int, int] = {}
    successors: dict[int, Sequence[int]] = {}
    follows: dict[int, int] = {}
    backward: list[tuple[int, int]] = []
    raising: list[int] = []
    size = instructions[-1].next if instructions else 0
    start = 0
    for one in instructions:
        if one.offset in starts:
            start = one.offset
        if one.next not in starts and one.next != size:
            continue
        after: list[int] = []
        follow = EXIT
        if one.op in _JUMPS:
            after = [one.target]
            follow = one.target
            if one.op in _BACKWARD:
                backward.append((start, one.target))
        elif one.op in _CONDITIONAL:
            after = [one.next, one.target]
        elif one.op == _SEND:  # no event says how often an awaited thing yields
            after = [one.next, one.target]
            follow = one.target
        elif one.op not in _ENDS and one.next != size:
            after = [one.next]
            follow = one.next
        elif one.op in _RAISES:
            raising.append(start)
        blocks[start] = one.next
        follows[start] = follow
        successors[start] = [way for way in after if way < size]
    return _Ways(blocks, successors, follows, backward, raising)


def _copies(code: CodeType, instructions: Sequence[_Instruction], ways: _Ways) -> tuple[tuple[int, int, int], ...]:
    """The short ends of the function that the compiler has put behind several jumps, if something is called in them."""
    ends = {
        ways.blocks[block]: block for block, after in ways.successors.items() if not after and block not in ways.raising
    }
    if len(ends) < 2:
        return ()
    positions: list[Position] = list(code.co_positions())
    place = {one.next: number for number, one in enumerate(instructions)}
    known: dict[tuple[object, ...], int] = {}
    found: list[tuple[int, int, int]] = []
    for end, block in sorted(ends.items()):
        last = place.get(end, -1)
        tail = [one for one in instructions[max(last + 1 - _COPIED, 0) : last + 1] if one.offset >= block]
        for first in range(len(tail)):
            rest = tail[first:]
            if not any(one.op in _CALLS for one in rest):
                break
            key = tuple((one.op, one.arg, positions[one.offset // 2]) for one in rest)
            original = known.setdefault(key, rest[0].offset)
            if original != rest[0].offset:
                found.append((rest[0].offset, end, original))
                break
    return tuple(found)


def _united(ways: _Ways, copies: Sequence[tuple[int, int, int]]) -> _Ways:
    """With the originals in place of their copies."""
    first = {start: original for start, _, original in copies}
    return ways._replace(
        successors={block: [first.get(way, way) for way in after] for block, after in ways.successors.items()},
        follows={block: first.get(way, way) for block, way in ways.follows.items()},
    )


def _usual(ways: _Ways) -> dict[int, Sequence[int]]:
    """The successors of each block without those from which only an exception leads on: an ``assert`` is passed."""
    before: dict[int, list[int]] = {}
    for block, after in ways.successors.items():
        for way in after:
            before.setdefault(way, []).append(block)
    left = {block: len(after) for block, after in ways.successors.items()}
    failing: set[int] = set()
    waiting = list(ways.raising)
    while waiting:
        block = waiting.pop()
        failing.add(block)
        for one in before.get(block, ()):
            left[one] -= 1
            if left[one] == 0:
                waiting.append(one)
    return {
        block: after if block in failing else [way for way in after if way not in failing]
        for block, after in ways.successors.items()
    }


def _post_dominators(successors: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """The immediate post-dominator of each block."""
    before: dict[int, list[int]] = {EXIT: []}
    for block, after in successors.items():
        for way in after or [EXIT]:
            before.setdefault(way, []).append(block)
    order = _reached(before, EXIT)
    while len(order) <= len(successors):
        # An endless loop: it is taken as if it could end after each iteration.
        seen = set(order)
        left = [block for block in successors if block not in seen]
        head = min((way for block in left for way in successors[block] if way <= block), default=left[0])
        before[EXIT] += [block for block in left if head in successors[block] and head <= block] or [head]
        order = _reached(before, EXIT)
    number = {block: place for place, block in enumerate(order)}  # a postorder of the reversed graph
    ways: dict[int, list[int]] = {block: [] for block in order}
    for way, blocks in before.items():
        for block in blocks:
            ways[block].append(way)
    immediate = {EXIT: EXIT}
    changed = True
    while changed:
        changed = False
        for block in reversed(order[:-1]):
            new: int | None = None
            for way in ways[block]:
                if way in immediate:
                    new = way if new is None else _common(immediate, number, way, new)
            if new is not None and immediate.get(block) != new:
                immediate[block] = new
                changed = True
    return immediate


def _common(immediate: Mapping[int, int], number: Mapping[int, int], one: int, other: int) -> int:
    while one != other:
        while number[one] < number[other]:
            one = immediate[one]
        while number[other] < number[one]:
            other = immediate[other]
    return one


def _reached(graph: Mapping[int, Sequence[int]], root: int) -> list[int]:
    """What can be reached from a node, in postorder: the root is the last."""
    order: list[int] = []
    seen = {root}
    stack = [(root, iter(graph.get(root, ())))]
    while stack:
        node, left = stack[-1]
        following = next((one for one in left if one not in seen), None)
        if following is None:
            order.append(node)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(graph.get(following, ()))))
    return order


def _loops(ways: _Ways) -> dict[int, int]:
    """Of each block in a loop, where the innermost loop around it begins."""
    members = _members(ways)
    innermost: dict[int, int] = {}
    for head in sorted(members, key=lambda head: -len(members[head])):
        innermost |= dict.fromkeys(members[head], head)
    return innermost


def _members(ways: _Ways) -> dict[int, set[int]]:
    """The blocks of each loop, by where it begins."""
    before: dict[int, list[int]] = {}
    for block, after in ways.successors.items():
        for way in after:
            before.setdefault(way, []).append(block)
    members: dict[int, set[int]] = {}
    for jump, head in ways.backward:
        mine = {head}
        waiting = [jump]
        while waiting:
            block = waiting.pop()
            if block not in mine:
                mine.add(block)
                waiting += before.get(block, ())
        # A handler of exceptions also jumps back, to what follows its ``try``.
        if jump == head or any(way in mine for way in ways.successors[head] if way != head):
            members.setdefault(head, set()).update(mine)
    return members


def _twice_tested(ways: _Ways, loops: Mapping[int, int]) -> dict[int, int]:
    """A ``while`` is tested before it and at its end: with a ``continue`` in it, these are two loops. (The inner: the outer one.)

    Those of ``while True`` differ by an instruction that does nothing.
    """
    found: dict[int, int] = {}
    for head in set(loops.values()):
        after = ways.successors[head]
        if ways.blocks[head] == head + 2 and len(after) == 1 and loops.get(after[0]) == after[0]:
            found[after[0]] = head
        for inner, left in (tuple(after), tuple(after[::-1])) if len(after) == 2 else ():
            blocks = (block for block, loop in loops.items() if loop == inner)
            if inner != head and loops.get(inner) == inner and any(left in ways.successors[block] for block in blocks):
                found[inner] = head
    return found


def _branches(
    code: CodeType, instructions: Sequence[_Instruction], ways: _Ways, loops: Mapping[int, int]
) -> tuple[Branch, ...]:
    positions: list[Position] = list(code.co_positions())
    loads = _loads(code, instructions, positions)
    same = _twice_tested(ways, loops)
    found: list[Branch] = []
    for before, one in pairwise(instructions):
        if one.op not in _CONDITIONAL:
            continue
        line, end_line, column, end_column = positions[one.offset // 2]
        if line is None:
            line = end_line = code.co_firstlineno
        if (one.op == _FOR or before.op in _MATCHES) and end_line != line:  # it stands for the whole statement
            end_line, end_column = line + 1, 0
        inside = [same.get(loop, loop) for loop in (loops.get(way, EXIT) for way in (one.next, one.target))]
        loop = one.op == _FOR or (inside[0] != inside[1] and before.op not in _MATCHES)
        start, end = (line, column or 0), (end_line or line, end_column or 0)
        names = [
            name
            for at in range(line, min(end[0], line + _MOST_NAMES) + 1)
            for place, name in loads.get(at, ())
            if start <= place < end
        ]
        found.append(
            Branch(one.offset, line, end[0], start[1], end[1], loop, tuple(dict.fromkeys(names))[:_MOST_NAMES])
        )
    return tuple(found)


def _loads(
    code: CodeType, instructions: Sequence[_Instruction], positions: Sequence[Position]
) -> dict[int, list[tuple[tuple[int, int], str]]]:
    """By line, the names that are read there, dotted, each with its line and column. What is called is not among them."""
    local = (
        code.co_varnames + tuple(name for name in code.co_cellvars if name not in code.co_varnames) + code.co_freevars
    )
    found: dict[int, list[tuple[tuple[int, int], str]]] = {}
    last = ""
    at: list[tuple[tuple[int, int], str]] | None = None  # where the last name is
    for one in instructions:
        name, called = "", False
        op, arg = one.op, one.arg
        if op in _FAST or op in _FREE:
            name = local[arg] if arg < len(local) else ""
        elif op in _FAST_PAIR:
            name = local[arg & 15]
        elif op == _NAME:
            name = code.co_names[arg]
        elif op == _GLOBAL:
            name, called = code.co_names[arg >> 1], bool(arg & 1)
        elif op == _ATTRIBUTE:
            called = bool(arg & 1)
            if last and not called:
                name = f"{last}.{code.co_names[arg >> 1]}"
                if at:
                    at.pop()
        elif op == _NULL and at:
            at.pop()
        last, at = "", None
        line, _, column, _ = positions[one.offset // 2]
        if name and not called and line is not None and name.isprintable() and len(name) <= _LONGEST:
            last, at = name, found.setdefault(line, [])
            if op in _FAST_PAIR:
                at.append(((line, column or 0), local[arg >> 4]))
            at.append(((line, column or 0), name))
    return found


def _lines(code: CodeType) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for start, _, line in code.co_lines():
        if line is not None and (not found or found[-1][1] != line):
            found.append((start, line))
    return tuple(found)
