"""Two paths in lockstep: frame by frame, decision by decision, up to the first difference that is not harmless.

Execution indexing (Xin, Sumner, Zhang: Efficient program execution indexing, 2008). What two sides did differently ends where
their ways join again; the difference is harmless if both made the same collectives until then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ddpnb.recording.facts.paths.follow import AT_SITE, Side, Status, is_behind, leave, offset_of
from ddpnb.recording.facts.paths.frames import BRANCH, CALL, HANDLED, NUMBER, RETURN, UNWIND, YIELD, Trace
from ddpnb.recording.facts.paths.shapes import END, Shape
from ddpnb.recording.parting import PartingKind
from ddpnb.recording.path import MOST, A, B

Counts = Callable[[Trace, int], bool]
_NEAR = 256  # bytes that are compared at first
_HARMLESS = 4096
_MOST_STARTS = 256  # calls at which two paths are tried to begin
_WHAT = (1 << 40) - 1  # of the key of a call: operator and group
_NO_ERRORS = None, None
_EXIT = (RETURN, YIELD, UNWIND)


@dataclass(slots=True)
class Difference:
    """Where two traces differ: their places there, and behind it. ``to``: where each jump led; -1: it was none.

    ``raised``: where an exception was raised, its type, and where it was handled (-1: not in this function), on each side.
    ``calls``: ranges of the calls of each side in it. ``raises``: an exception led one side out of it.
    """

    kind: PartingKind
    shape: Shape
    offset: int
    places: tuple[int, int]
    to: tuple[int, int] = (-1, -1)
    raised: tuple[tuple[int, str, int] | None, tuple[int, str, int] | None] = (None, None)
    behind: tuple[int, int] = (0, 0)
    calls: tuple[range, range] = (range(0), range(0))
    raises: bool = False


@dataclass(slots=True)
class Comparison:
    """``first``: the first difference that is not harmless. ``role``: both sides have met again in it before they parted.

    ``weak``: both have made one call, at different places, and these sides still are in it.
    ``uneven``: it may come from a function of a library that only one side recorded. ``harmless``: those before it, oldest first.
    ``joined``: how far both have been followed.
    """

    one: Trace
    other: Trace
    first: Difference | None = None
    role: bool = False
    weak: tuple[int, ...] = ()
    uneven: bool = False
    harmless: list[Difference] = field(default_factory=list[Difference])
    joined: tuple[int, int] = (0, 0)


class _Unknown(Exception):
    """What was recorded does not say what comes next."""


def compare(
    one: Trace,
    other: Trace,
    counts: Counts,
    *,
    begin: tuple[int, int] | None = None,
    end: tuple[int, int] | None = None,
    patient: bool = True,
) -> Comparison:
    """The first difference of two traces that is not harmless.

    Args:
        one, other: they have the same ``book``.
        counts: whether a call of a trace must be made by the other side too.
        begin: places at which both have the same stack; None: where both begin.
        end: what is behind these is not looked at.
        patient: a call that one side alone has made is no harm if the other makes it later, before their next common one.
    """
    if begin is None:
        begin = start(one, other, counts)
        if begin is None:
            return Comparison(one, other)
    return _Walk(one, other, counts, begin, end or (len(one), len(other)), patient).compare()


def start(one: Trace, other: Trace, counts: Counts) -> tuple[int, int] | None:
    """Where to begin: at the beginnings, or behind the first call that both have made with equal stacks."""
    if one.complete and other.complete and one.base == other.base:
        return 0, 0
    made = {key: number for number, key in enumerate(other.keys) if counts(other, number)}
    tried = 0
    for number, key in enumerate(one.keys):
        twin = made.get(key)
        if twin is None or not counts(one, number):
            continue
        here, there = one.calls[number], other.calls[twin]
        if one.words[here] == other.words[there] and one.stack(one.frame_at(here)) == other.stack(
            other.frame_at(there)
        ):
            return here + 2, there + 2
        tried += 1
        if tried == _MOST_STARTS:
            break
    return None


def equal_words(one: bytes, i: int, other: bytes, j: int, most: int) -> int:
    """How many words from here on are equal."""
    i, j, most = 8 * i, 8 * j, 8 * most
    at, step = 0, _NEAR
    while at < most and one[i + at : i + at + step] == other[j + at : j + at + step]:
        at += step
        step = min(step * 2, 1 << 16)
    if at >= most:
        return most // 8
    while step > _NEAR:
        step //= 2
        if one[i + at : i + at + step] == other[j + at : j + at + step]:
            at += step
    mine, theirs = one[i + at : i + at + _NEAR], other[j + at : j + at + _NEAR]
    bits = int.from_bytes(mine, "little") ^ int.from_bytes(theirs, "little")
    if bits == 0:  # one of them ends
        return min(at + min(len(mine), len(theirs)), most) // 8
    return min(at // 8 + ((bits & -bits).bit_length() - 1) // 64, most // 8)


class _Walk:
    def __init__(
        self,
        one: Trace,
        other: Trace,
        counts: Counts,
        begin: tuple[int, int],
        end: tuple[int, int],
        patient: bool,
    ) -> None:
        self.one, self.other = one, other
        self.counts = counts
        self.i, self.j = begin
        self.ends = end
        self.found = Comparison(one, other)
        self.patient = patient
        self._last: dict[int, Difference] = {}  # by function, what was no harm
        self._pending: tuple[Difference, int] | None = None  # and how many harmless ones were before it
        self._owed: tuple[list[int], list[int]] = [], []  # what one side has called and the other not yet
        self._decided: dict[
            tuple[int, int, int], tuple[PartingKind, tuple[int, int], int, Sequence[frozenset[int]]]
        ] = {}

    def compare(self) -> Comparison:
        """Compare, while what differs is harmless."""
        one, other = self.one, self.other
        try:
            while True:
                most = min(self.ends[0] - self.i, self.ends[1] - self.j)
                equal = equal_words(one.data, self.i, other.data, self.j, most) if most > 0 else 0
                self.i += equal
                self.j += equal
                if self.i >= self.ends[0] or self.j >= self.ends[1]:
                    break
                if one.words[self.i] & 15 == NUMBER == other.words[self.j] & 15:
                    self.i -= 1
                    self.j -= 1
                at = self.i, self.j
                if not self._differ() or (self.i, self.j) == at:
                    break
        except _Unknown:
            self.found.uneven = True
        self._settle()
        self.found.joined = self.i, self.j
        return self.found

    def _add(self, found: Difference) -> None:
        """Keep what was no harm; of very many the last ones."""
        harmless = self.found.harmless
        harmless.append(found)
        self._last[id(found.shape)] = found
        if len(harmless) > 2 * _HARMLESS:
            del harmless[:_HARMLESS]
            if self._pending is not None:
                self._pending = self._pending[0], max(0, self._pending[1] - _HARMLESS)

    def _settle(self) -> None:
        """What only one side has called and the other has not called since: that is where they parted."""
        if self._pending is None:
            return
        missing = any(key not in self.other.made for key in self._owed[0]) or any(
            key not in self.one.made for key in self._owed[1]
        )
        if missing or self.found.first is not None:
            first, before = self._pending
            self.found.first, self.found.role, self.found.weak = first, False, ()
            del self.found.harmless[before:]

    # -- one difference

    def _differ(self) -> bool:
        """Look at the words that differ; whether both continue behind them."""
        one, other, i, j = self.one, self.other, self.i, self.j
        mine, theirs = one.words[i], other.words[j]
        kinds = mine & 15, theirs & 15
        if kinds[0] == CALL and not self._counts(one, i):
            self.i = i + 2
            if kinds[1] == CALL and theirs >> A & MOST == mine >> A & MOST and not self._counts(other, j):
                self.j = j + 2
            return True
        if kinds[1] == CALL and not self._counts(other, j):
            self.j = j + 2
            return True
        frames = one.frame_at(i), other.frame_at(j)
        if one.code[frames[0]] != other.code[frames[1]] or not one.code[frames[0]]:
            raise _Unknown
        shape = one.shape(frames[0])
        if kinds[0] == kinds[1] == BRANCH and (mine ^ theirs) >> A & MOST == 0:
            return self._decision(shape, frames, mine, theirs)
        for leaves in (HANDLED, UNWIND):
            if leaves in kinds and not kinds[0] == kinds[1] == UNWIND:
                return self._exception(shape, frames)
        hot = self._hot(shape, frames)
        if hot is not None:
            return hot
        if kinds[0] in _EXIT and kinds[1] in _EXIT:  # the decision before said why
            self.i, self.j = i + 1, j + 1
            return True
        first = self._first_site(shape)
        if first >= 0:
            return self._at_site(shape, first)
        return self._elsewhere(shape, frames)

    def _decision(self, shape: Shape, frames: tuple[int, int], mine: int, theirs: int) -> bool:
        offset, to = mine >> A & MOST, (mine >> B & MOST, theirs >> B & MOST)
        i, j = self.i, self.j
        key = self.one.code[frames[0]], mine, theirs
        known = self._decided.get(key)
        if known is None:
            blocks = shape.block(to[0]), shape.block(to[1])
            behind = shape.behind(shape.block(offset))
            kind: PartingKind = "loop" if shape.loops(offset) else "branch"
            goals = {behind, *shape.heads(offset, outer=kind == "loop")}
            rows = [shape.chain(block) for block in blocks]
            ends = [next((number for number, one in enumerate(row) if one in goals), -1) for row in rows]
            meet = -1 not in ends and rows[0][ends[0]] == rows[1][ends[1]]
            short = tuple(frozenset(row[:end]) for row, end in zip(rows, ends, strict=True)) if meet else ()
            known = self._decided[key] = kind, blocks, behind, short
        kind, blocks, behind, short = known
        if (
            len(short) == 2
            and i + 1 < self.ends[0]
            and j + 1 < self.ends[1]
            and is_behind(shape, self.one.words[i + 1], short[0])
            and is_behind(shape, self.other.words[j + 1], short[1])
        ):  # nothing was called in it
            self._add(Difference(kind, shape, offset, (i, j), to, _NO_ERRORS, (i + 1, j + 1)))
            self.i, self.j = i + 1, j + 1
            return True
        found = Difference(kind, shape, offset, (i, j), to)
        return self._region(found, frames, (i + 1, j + 1), blocks, (False, False), behind)

    def _exception(self, shape: Shape, frames: tuple[int, int]) -> bool:
        raised = tuple(
            (*trace.raised.get(place, (-1, "")), trace.words[place] >> A & MOST if kind == HANDLED else -1)
            if (kind := trace.words[place] & 15) in (HANDLED, UNWIND)
            else None
            for trace, place in ((self.one, self.i), (self.other, self.j))
        )
        offset = next((one[0] for one in raised if one is not None), -1)
        if offset < 0:
            raise _Unknown
        block = shape.block(offset)
        found = Difference("exception", shape, offset, (self.i, self.j), raised=(raised[0], raised[1]))
        return self._region(found, frames, (self.i, self.j), (block, block), (True, True), shape.behind(block))

    def _elsewhere(self, shape: Shape, frames: tuple[int, int]) -> bool:
        """Both are at different places although their decisions were equal: an earlier difference led there."""
        blocks = tuple(
            shape.block(offset_of(trace.words[place])) if trace.words[place] & 15 not in _EXIT else END
            for trace, place in ((self.one, self.i), (self.other, self.j))
        )
        before = self._last.get(id(shape))
        if before is None:
            raise _Unknown
        found = Difference(before.kind, shape, before.offset, before.places, before.to, before.raised)
        pair = blocks[0], blocks[1]
        ways = shape.passed(pair[0])
        at = pair[1]
        while at != END and at not in ways:
            at = shape.behind(at)
        return self._region(found, frames, (self.i, self.j), pair, (False, False), at)

    def _hot(self, shape: Shape, frames: tuple[int, int]) -> bool | None:
        """Skip the loop of a jump that was not recorded any more; None: there is none around."""
        code = self.one.code[frames[0]]
        jumps = {
            jump
            for trace, place in ((self.one, self.i), (self.other, self.j))
            for jump, since in trace.hot.get(code, {}).items()
            if since <= place
        }
        best: tuple[int, int, int] | None = None
        offsets = [offset_of(self.one.words[self.i]), offset_of(self.other.words[self.j])]
        for jump in jumps:
            first, end = shape.loop(jump)
            inside = any(first <= offset < end for offset in offsets if offset >= 0)
            if inside and (best is None or end - first < best[1] - best[0]):
                best = first, end, jump
        if best is None:
            return None
        behind = [
            leave(trace, place, limit, best[0], best[1])
            for trace, place, limit in ((self.one, self.i, self.ends[0]), (self.other, self.j, self.ends[1]))
        ]
        if behind == [self.i, self.j]:
            return None
        found = Difference("loop", shape, best[2], (self.i, self.j))
        stops = behind[0] >= self.ends[0], behind[1] >= self.ends[1]
        return self._judge(found, (self.i, self.j), (behind[0], behind[1]), stops)

    def _first_site(self, shape: Shape) -> int:
        """The site at which one side or both make a call that the other does not make; -1: it is none."""
        words = self.one.words[self.i], self.other.words[self.j]
        sites = [offset_of(word) for word in words if word & 15 in AT_SITE]
        if len(sites) == 1:
            rest = next(word for word in words if word & 15 not in AT_SITE)
            if rest & 15 == BRANCH and shape.block(offset_of(rest)) not in shape.chain(shape.block(sites[0])):
                return -1
            return sites[0]
        if len(sites) == 2 and sites[0] != sites[1]:
            blocks = shape.block(sites[0]), shape.block(sites[1])
            if blocks[0] != blocks[1]:
                return sites[0] if blocks[1] in shape.chain(blocks[0]) else sites[1]
        return min(sites, default=-1)

    def _at_site(self, shape: Shape, site: int) -> bool:
        """Compare what both sides called at one place."""
        behind: list[int] = []
        functions: list[list[int]] = []
        for trace, place, limit in ((self.one, self.i, self.ends[0]), (self.other, self.j, self.ends[1])):
            called = list[int]()
            while place < limit and trace.words[place] & 15 in AT_SITE and offset_of(trace.words[place]) == site:
                if trace.words[place] & 15 != CALL:
                    called.append(trace.words[place] >> A & MOST)
                place = trace.behind(place)
            behind.append(place)
            functions.append(called)
        book = self.one.book
        if functions[0] and functions[1] and functions[0][0] != functions[1][0]:
            codes = book.shapes[functions[0][0]].code, book.shapes[functions[1][0]].code
            names = {(code.file, code.function) for code in codes}
            if len(names) == 1 and not codes[0].function.endswith("<lambda>"):  # two versions of one function
                raise _Unknown
        kind: PartingKind = "call" if functions[0] != functions[1] else "operation"
        if functions[0] == functions[1] and _unnumbered(self.one, self.i, behind[0]) == _unnumbered(
            self.other, self.j, behind[1]
        ):  # a call before it is missing on one side, or another thread has made some in this group
            if self._pending is not None:
                self.found.first = self._pending[0]
                return False
            raise _Unknown
        found = Difference(kind, shape, site, (self.i, self.j))
        stops = behind[0] >= self.ends[0], behind[1] >= self.ends[1]
        harmless = self._judge(found, (self.i, self.j), (behind[0], behind[1]), stops)
        differing = set(functions[0]).symmetric_difference(functions[1])
        self.found.uneven |= not harmless and any(not book.shapes[code].code.user for code in differing)
        return harmless

    # -- regions

    def _region(
        self,
        found: Difference,
        frames: tuple[int, int],
        places: tuple[int, int],
        blocks: tuple[int, int],
        within: tuple[bool, bool],
        target: int,
    ) -> bool:
        """Follow both sides to where their ways join, also in the functions around.

        ``blocks``: where each side is; ``within``: whether behind the beginning of this block.
        """
        traces = self.one, self.other
        sides = [Side(*one) for one in zip(traces, self.ends, frames, places, blocks, within, strict=True)]
        first, second = sides
        shape = traces[0].shape(first.frame)
        heads = shape.heads(found.offset, outer=shape.loops(found.offset))
        while True:
            self._meet(found, shape, heads, first, second, target)
            behind = first.place, second.place
            stops = first.status is Status.OPEN, second.status is Status.OPEN
            if any(stops) or first.status is Status.REACHED:
                return self._judge(found, places, behind, stops)
            unwound = [one.trace.words[one.place] & 15 == UNWIND for one in sides]
            behind = first.place + 1, second.place + 1
            found.raises |= unwound[0] != unwound[1]
            sites = [one.trace.site[one.frame] for one in sides]
            for one in sides:
                one.place += 1
                one.frame = one.trace.parent[one.frame]
            if unwound[0] == unwound[1] or 0 in (first.frame, second.frame):  # 0: the thread ends by it
                return self._judge(found, places, behind, (False, False))
            if traces[0].code[first.frame] != traces[1].code[second.frame]:
                raise _Unknown
            shape = traces[0].shape(first.frame)
            for one, site in zip(sides, sites, strict=True):
                one.block, one.inside = shape.block(max(site - 1, 0)), True
            heads = shape.heads(max(sites[0] - 1, 0))
            target = shape.behind(first.block)

    def _meet(
        self, found: Difference, shape: Shape, heads: tuple[int, ...], first: Side, second: Side, target: int
    ) -> None:
        """Follow both in one function to where they meet: at ``target``, or at the beginning of a loop around; or as far as they go."""
        goals = frozenset(heads) | (frozenset([target]) if target != END else frozenset[int]())
        for one in (first, second):
            found.raises |= one.follow(shape, goals, target)
        for _ in range(2 * len(heads) + 4):
            status = first.status, second.status
            if Status.OPEN in status or status == (Status.ENDED, Status.ENDED):
                return
            if Status.ENDED in status:
                found.raises |= (first if second.status is Status.ENDED else second).follow(shape, frozenset(), END)
                continue
            if first.block == second.block:
                return
            # The one that is further in has to come to where the other is: in a loop the next time it begins is the last place.
            order = {head: float(number) for number, head in enumerate(heads)}
            for one in (first, second):
                around = (order[head] - 0.5 for head in shape.heads(shape.starts[one.block]) if head in order)
                order.setdefault(one.block, next(around, float(len(heads))))
            later = max(first, second, key=lambda one: order[one.block])
            if order[first.block] == order[second.block]:
                later = first if first.block in shape.passed(second.block) else second
            behind = heads[heads.index(later.block) :] if later.block in heads else (later.block,)
            earlier = second if later is first else first
            found.raises |= earlier.follow(shape, frozenset(behind), later.block)
        raise _Unknown

    def _judge(
        self, found: Difference, places: tuple[int, int], behind: tuple[int, int], stops: tuple[bool, bool]
    ) -> bool:
        """Whether both made the same collectives between these places; ``stops``: which side is still there."""
        behind = min(behind[0], self.ends[0]), min(behind[1], self.ends[1])
        found.behind = behind
        ranges: list[range] = []
        calls: list[list[int]] = []
        for trace, place, end in ((self.one, places[0], behind[0]), (self.other, places[1], behind[1])):
            these = range(trace.call_at(place), trace.call_at(end))
            ranges.append(these)
            calls.append([trace.keys[number] for number in these if self.counts(trace, number)])
        found.calls = ranges[0], ranges[1]
        mine, theirs = self._owed[0] + calls[0], self._owed[1] + calls[1]
        common = _common(mine, theirs)
        more = len(mine) > common, len(theirs) > common
        if not any(stops):
            if all(more) and sorted(mine) == sorted(theirs):  # the order was no harm: both have continued
                common, more = len(mine), (False, False)
            if all(more) or (any(more) and not self.patient):
                self.found.first = found
                return False
            if any(more) and self._pending is None:
                self._pending = found, len(self.found.harmless)
            elif not any(more):
                self._pending = None
            self._owed = mine[common:], theirs[common:]
            self._add(found)
            self.i, self.j = behind
            return True
        missing = (
            not self.patient or any(key not in self.other.made for key in mine[common:]),
            not self.patient or any(key not in self.one.made for key in theirs[common:]),
        )
        if all(more) or any(more[side] and not stops[1 - side] and missing[side] for side in (0, 1)):
            self.found.first = found
            self.found.role = common > 0
            return False
        stands = tuple(side for side in (0, 1) if more[side] and not stops[1 - side])
        if stands:
            self.found.first, self.found.role, self.found.weak = found, common > 0, stands
            return False
        side = stops.index(True)
        if stops[0] and stops[1]:
            if any(more[side] and missing[side] for side in (0, 1)):  # one of them is before it
                self.found.first, self.found.role = found, True
            elif mine and self._stand_apart():
                self.found.first, self.found.weak = found, (0, 1)
        elif not any(more) and self._waits_behind(1 - side, behind[1 - side], side):
            self.found.first = found  # one side never left it
            self.found.role = common > 0
        return False

    def _stand_apart(self) -> bool:
        """Whether both end in one call, made at different lines."""
        sites: list[tuple[Shape, int]] = []
        for trace in (self.one, self.other):
            place = len(trace) - 2
            if trace.calls[-1:] != [place]:
                return False
            shape = trace.shape(trace.frame_at(place))
            sites.append((shape, shape.line(offset_of(trace.words[place]))))
        return self.one.keys[-1] == self.other.keys[-1] and sites[0] != sites[1]

    def _waits_behind(self, side: int, behind: int, still: int) -> bool:
        """Whether this side ends in a call that the one that is still there has not made."""
        trace, other = ((self.one, self.other), (self.other, self.one))[side]
        if self.ends[side] != len(trace) or self.ends[still] != len(other) or not trace.calls:
            return False
        last = len(trace.calls) - 1
        return (
            trace.calls[last] >= behind
            and trace.calls[last] + 2 == len(trace)
            and self.counts(trace, last)
            and trace.keys[last] not in other.keys
        )

    def _counts(self, trace: Trace, place: int) -> bool:
        return self.counts(trace, trace.call_at(place))


def _unnumbered(trace: Trace, place: int, end: int) -> list[int]:
    """The operators and groups of the calls between two places."""
    return [key & _WHAT for key in trace.keys[trace.call_at(place) : trace.call_at(end)]]


def _common(mine: list[int], theirs: list[int]) -> int:
    if mine == theirs:
        return len(mine)
    return next(
        (place for place, (one, other) in enumerate(zip(mine, theirs, strict=False)) if one != other),
        min(len(mine), len(theirs)),
    )
