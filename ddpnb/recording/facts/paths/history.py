"""A rank's own history: how often it has gone each way before, and what differs from its earlier iterations."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from ddpnb.recording.facts.paths.align import Comparison, Difference, compare, offset_of
from ddpnb.recording.facts.paths.frames import BRANCH, Trace, at_instruction
from ddpnb.recording.facts.paths.shapes import Shape
from ddpnb.recording.path import KIND, MOST, A, B, C, Kind

_PLACE = (1 << B) - 1  # of a word: its kind, and of a jump or call where it is
_FEWEST = 3  # iterations that make a habit
_SELDOM = 0.1
_OFTEN = 3  # one of so many times


def decisions(
    trace: Trace, shape: Shape, offset: int, before: int, most: int | None = None
) -> tuple[int, Counter[int]]:
    """How often a rank came to a jump before a place, and how often it went each way; ``most``: only the first of these."""
    ways = Counter(trace.words[place] >> B & MOST for place in visits(trace, shape, offset, before)[:most])
    return ways.total(), ways


def visits(trace: Trace, shape: Shape, offset: int, before: int | None = None) -> list[int]:
    """The places at which a rank came to a jump."""
    key = BRANCH | offset << A
    places = [place for place, one in enumerate(trace.words[:before]) if one & _PLACE == key]
    return [place for place in places if trace.shape(trace.frame_at(place)) is shape]


def exceptions(trace: Trace, shape: Shape, offset: int, before: int) -> tuple[int, int]:
    """How often an exception was raised at an offset before a place, and how often the rank came there."""
    raised = sum(
        1
        for place, (at, _) in trace.raised.items()
        if at == offset and place < before and trace.shape(trace.frame_at(place)) is shape
    )
    calls = frames = 0
    for number, start in enumerate(trace.start):
        if 0 <= start < before:
            frames += trace.shape(number) is shape and 0 <= trace.end[number] < before  # not that of now
            word = trace.words[start]  # what is awaited resumes there
            here = word & KIND == Kind.ENTER and at_instruction(offset, offset_of(word))
            calls += here and trace.shape(trace.parent[number]) is shape
    for place in trace.calls[: bisect_left(trace.calls, before)]:
        calls += at_instruction(offset, offset_of(trace.words[place])) and trace.shape(trace.frame_at(place)) is shape
    return raised, max(raised, calls or frames)


def sequences(trace: Trace, place: int) -> tuple[int, int]:
    """How often what a rank did last and does at a place came one after the other before, and how often it did the former."""
    if place < 1 or place >= len(trace):
        return 0, 0
    back = place - 2 if trace.words[place - 1] & KIND == Kind.NUMBER else place - 1
    pair = _what(trace, back), _what(trace, place)
    came = [at for at in range(back) if trace.words[at] & _PLACE == trace.words[back] & _PLACE]
    came = [at for at in came if _what(trace, at) == pair[0]]
    return sum(_what(trace, at + place - back) == pair[1] for at in came), len(came)


def _what(trace: Trace, place: int) -> tuple[int, str, str]:
    """A word; of a call its place, operation and group, without its tensors."""
    one, texts = trace.words[place], trace.book.texts
    if one & KIND != Kind.CALL:
        return one, "", ""
    return one & _PLACE, texts[one >> B & MOST].partition("(")[0], texts[one >> C & MOST]


def odd(ways: Sequence[tuple[tuple[int, ...], Mapping[int, tuple[int, int]]]], *, by_history: bool) -> tuple[int, ...]:
    """Which ranks left the others: by a habit of theirs, else because they are fewer; none where neither tells.

    Args:
        ways: of each side, its ranks, and by rank how often it had gone this way and had come to the decision before.
        by_history: whether another way than before says something: the end of a loop comes once.
    """
    new = [side for side in ways if by_history and _seldom(side[1])]
    by_own = tuple(sorted(rank for ranks, _ in new for rank in ranks)) if len(new) < len(ways) else ()
    if by_own and all(times >= _FEWEST for _, before in ways for _, times in before.values()):
        return by_own
    most = max(len(ranks) for ranks, _ in ways)
    fewer = tuple(sorted(rank for ranks, _ in ways for rank in ranks if len(ranks) < most))
    return by_own if sum(len(ranks) == most for ranks, _ in ways) > 1 else fewer


def _seldom(before: Mapping[int, tuple[int, int]]) -> bool:
    return bool(before) and all(times and taken < _SELDOM * times for taken, times in before.values())


def own_difference(trace: Trace, first: int = 0, end: int | None = None) -> Comparison | None:
    """Where an iteration of a rank made other calls than its iterations before.

    Args:
        trace: its calls have no numbers (``counted=False``).
        first, end: only what is between.

    Returns:
        Of the innermost loop around its last call whose iterations have a habit: the first difference of the last iteration that
        broke it, for the first time, from the nearest one before that did not. None: there is none.
    """
    end = len(trace) if end is None else end
    last = trace.call_at(end) - 1
    if last < 0 or trace.calls[last] < first:
        return None
    frame = trace.frame_at(trace.calls[last])
    while frame:
        for loop, iterations, left in _loops(trace, frame, first, end):
            found = _broken(trace, iterations, left)
            here = found.first if found is not None else None
            if here is not None and (here.kind != "loop" or here.shape.loop(here.offset) != loop):  # it ends once
                return found
        frame = trace.parent[frame]
    return None


def _loops(
    trace: Trace, frame: int, first: int, end: int
) -> Iterator[tuple[tuple[int, int], list[tuple[int, int]], bool]]:
    """Each loop of a function, the innermost first; its iterations, from jump to jump; and whether the last one has ended."""
    shape = trace.shape(frame)
    stop = trace.end[frame] if trace.closed(frame) else len(trace)
    place, stop = max(trace.start[frame] + 1, first), min(stop, end)
    jumps: dict[int, list[int]] = {}
    loops: dict[int, tuple[int, int]] = {}
    while place < stop:
        word = trace.words[place]
        if word & 15 == BRANCH:
            offset = word >> A & MOST
            if offset not in loops:
                loops[offset] = shape.loop(offset) if shape.loops(offset) else (0, 0)
            if loops[offset][1]:
                jumps.setdefault(offset, []).append(place)
        place = trace.behind(place)
    for offset in sorted(jumps, key=lambda one: loops[one][1] - loops[one][0]):
        begin, behind = loops[offset]
        end = jumps[offset][-1] + 1
        while end < stop and (offset_of(trace.words[end]) < 0 or begin <= offset_of(trace.words[end]) < behind):
            end = trace.behind(end)
        left = end < stop or trace.closed(frame)
        yield (
            loops[offset],
            [
                (one, following)
                for one, following in pairwise([*jumps[offset], end])
                if shape.enters(offset, trace.words[one] >> B & MOST)
            ],
            left,
        )


def _broken(trace: Trace, iterations: Sequence[tuple[int, int]], left: bool) -> Comparison | None:
    made = [tuple(trace.keys[trace.call_at(one) : trace.call_at(end)]) for one, end in iterations]
    if not any(made):
        return None
    often = Counter(made[:-1]).most_common(1)
    if not often or often[0][1] < max(_FEWEST - 1, (len(made) - 1) / 2):  # peers that change each time are no habit
        return None
    usual = often[0][0]
    for number in range(len(made) - 1, 0, -1):
        calls = made[number]
        whole = left or number < len(made) - 1
        if calls == usual or made.count(calls) > 1 or (not whole and usual[: len(calls)] == calls):
            continue
        before = next((one for one in range(number - 1, -1, -1) if made[one] == usual), None)
        if before is None:
            continue
        (begin, end), (begins, ends) = iterations[before], iterations[number]
        found = compare(trace, trace, _all, begin=(begin + 1, begins + 1), end=(end, ends), patient=False)
        first = found.first
        if first is None or first.kind == "operation":  # a library may do more now and then
            continue
        if not _often(trace, first):
            return found
    return None


def _often(trace: Trace, first: Difference) -> bool:
    """Whether the rank had often gone this way before: peers or roles that change each time are no other way."""
    if first.kind != "branch" or first.to[1] < 0:
        return False
    times, ways = decisions(trace, first.shape, first.offset, first.places[1])
    return ways[first.to[1]] * _OFTEN >= times > 0


def _all(_trace: Trace, _call: int) -> bool:
    return True
