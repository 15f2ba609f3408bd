"""Where ranks part: the comparison of all their paths, as Partings with sites, texts and values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from ddpnb.recording.facts.once import once
from ddpnb.recording.facts.paths import history
from ddpnb.recording.facts.paths.align import Comparison, Difference, compare
from ddpnb.recording.facts.paths.frames import Book, Trace, dark, traces
from ddpnb.recording.facts.paths.matching import Counted, listed_in, names_of, waits
from ddpnb.recording.facts.paths.recorded_calls import compared
from ddpnb.recording.facts.paths.shapes import Shape
from ddpnb.recording.facts.paths.ways import call_text, callers_of, text_of, where_to
from ddpnb.recording.parting import Harmless, Parting, Way
from ddpnb.recording.path import Path
from ddpnb.recording.recording import Recording
from ddpnb.recording.stacks import Frame

WORLD = "default_pg"
_CALLS, _HARMLESS, _ROUNDS, _THREADS = 8, 8, 16, 8
_FEW = 2  # times that make no habit
_NO_COLLECTIVES = ("init_process_group", "destroy_process_group")
_BEFORE = "as in the iterations before"
_STEP = "optimizer step"


@dataclass(frozen=True, slots=True)
class Differences:
    """What ranks did differently in a part of a run: where they parted in it, and where they parted and met again: what is no habit first, then the newest."""

    parting: Parting | None = None
    harmless: tuple[Harmless, ...] = ()


@once
def parting(recording: Recording, side: tuple[int, ...], others: tuple[int, ...]) -> Parting | None:
    """Where these ranks left the others, or the others left them; None: nothing recorded shows it."""
    return next((found for paths in _threads(recording) if (found := paths.parting(side, others)) is not None), None)


@once
def partings(recording: Recording) -> tuple[Parting, ...]:
    """Where ranks part, over all ranks: one Parting per place and set of ways, the earliest first."""
    return next((found for paths in _threads(recording) if (found := paths.partings())), ())


@once
def differences(
    recording: Recording, ranks: tuple[int, ...], others: tuple[int, ...], until: int | None = None
) -> Differences:
    """What these ranks did differently from the others until the end of their optimizer step ``until`` (from 1; None: all)."""
    return next(
        (found for paths in _threads(recording)[:1] if (found := paths.differences(ranks, others, until))),
        Differences(),
    )


@once
def _threads(recording: Recording) -> list[ComparedPaths]:
    """The paths of the main threads, and those of other threads of one name on several ranks."""
    paths = compared(recording)
    if len(paths) < 2:
        return []
    names = Counter(name for path in paths.values() for name in islice(path.threads, 1, _THREADS))
    groups = {call.group for record in recording.ranks.values() for call in record.calls[-64:]}
    members = {name: group.ranks for group in groups for name in names_of(group)}
    stacks = {rank: record.main_stack for rank, record in recording.ranks.items()}
    return [
        ComparedPaths(
            paths,
            members={WORLD: tuple(range(recording.world_size)), **members},
            sources=recording.sources,
            frames={rank: stack.frames for rank, stack in stacks.items() if stack is not None},
            steps={rank: record.steps for rank, record in recording.ranks.items()},
            thread=name,
        )
        for name in (None, *(name for name, times in names.items() if times > 1))
    ]


class ComparedPaths:
    """The paths of one thread of each rank, and what is known beside them.

    Args:
        paths: by rank.
        members: by name of a group, its ranks; of others, those that their names list, else those that call in them.
        sources: by file.
        frames: by rank, its frames that still live, with locals.
        steps: by rank, how many optimizer steps it has made.
        thread: its name; None: the main thread.
    """

    def __init__(
        self,
        paths: Mapping[int, Path],
        *,
        members: Mapping[str, Collection[int]] | None = None,
        sources: Mapping[str, str] | None = None,
        frames: Mapping[int, Sequence[Frame]] | None = None,
        steps: Mapping[int, int] | None = None,
        thread: str | None = None,
    ) -> None:
        self._paths, self._thread = paths, thread
        self._sources, self._frames, self._steps = sources or {}, frames or {}, steps or {}
        self._given = members or {}
        self._book = Book()
        self._traces = traces(paths, thread, self._book)
        libraries = [
            frozenset(code for code in set(one.code) if not self._book.shapes[code].code.user)
            for one in set(self._traces.values())
        ]
        self._libraries = frozenset[int]().union(*libraries)
        uneven = self._libraries.difference(frozenset.intersection(*libraries)) if libraries else frozenset[int]()
        self._hidden = uneven | dark(paths.values(), self._book)
        if self._hidden:  # not all ranks have recorded them, or not always
            self._traces = traces(paths, thread, self._book, self._hidden)
        self._users: dict[int, Trace] | None = None
        self._plain: dict[int, Trace] | None = None
        self._members: dict[int, frozenset[int]] = {}
        self._compared: dict[tuple[int, int, frozenset[int]], Comparison] = {}

    # -- what is asked

    def partings(self) -> tuple[Parting, ...]:
        """Where ranks part, the earliest first."""
        if len(self._traces) < 2:
            return ()
        everyone = tuple(self._traces)
        sets = {everyone: None}
        for trace in set(self._traces.values()):
            if waits(trace):
                members = self._of_group(trace.group(len(trace.calls) - 1))
                inside = tuple(rank for rank in everyone if rank in members)
                if len(inside) > 1:
                    sets[inside] = None
        found: list[Parting] = []
        for ranks in sets:
            found += (one for one in self._among(ranks) if not any(_covers(other, one) for other in found))
        if not found:
            for rank in self._awaited():
                own = self._own(rank)
                if own is not None:
                    found.append(own)
        return tuple(found)

    def parting(self, side: Iterable[int], others: Iterable[int]) -> Parting | None:
        """Where the ranks of ``side`` and ``others`` part."""
        mine = [rank for rank in side if rank in self._traces]
        theirs = [rank for rank in others if rank in self._traces and rank not in mine]
        if not mine or not theirs:
            return None
        reference = self._reference(theirs)
        found = self._firsts(reference, [*theirs, *mine])
        ordered = sorted((rank for rank in mine if rank in found), key=lambda rank: found[rank].places[0])
        if ordered:
            one = self._of_rank(reference, ordered[0], found, [*theirs, *mine])
            if one is not None:
                return one
        awaited = set(self._awaited())
        for rank in sorted(mine, key=lambda rank: rank not in awaited):
            own = self._own(rank)
            if own is not None:
                return own
        return None

    def differences(self, ranks: Iterable[int], others: Iterable[int], until: int | None = None) -> Differences:
        """What ``ranks`` did differently from ``others`` until an optimizer step ended."""
        mine = [rank for rank in ranks if rank in self._traces]
        theirs = [rank for rank in others if rank in self._traces and rank not in mine]
        if not mine or not theirs:
            return Differences()
        reference = self._reference(theirs)
        harmless: dict[tuple[int, int], tuple[Difference, Comparison, list[int]]] = {}
        found: Parting | None = None
        for rank in mine:
            comparison = self._pair(reference, rank)
            last = self._end_of_step(reference, comparison.one, until)
            for one in _rarest([one for one in comparison.harmless if one.places[0] < last]):
                kept, _, alike = harmless.setdefault((id(one.shape), one.offset), (one, comparison, []))
                if kept.to == one.to:
                    alike.append(rank)
            if found is None and comparison.first is not None and comparison.first.places[0] < last:
                firsts = self._firsts(reference, [*theirs, *mine])
                found = self._of_rank(reference, rank, firsts, [*theirs, *mine]) if rank in firsts else None
        first = islice(harmless.values(), _HARMLESS)
        return Differences(
            found, tuple(self._harmless(one, pair, (reference,), tuple(alike)) for one, pair, alike in first)
        )

    # -- comparisons

    def _among(self, ranks: tuple[int, ...]) -> list[Parting]:
        """Where these ranks part. What is not compared with the first of them is compared among itself."""
        found: dict[int, Parting] = {}
        waiting = [ranks]
        for _ in range(_ROUNDS):
            if not waiting:
                break
            group = waiting.pop()
            reference = self._reference(group)
            firsts = self._firsts(reference, group)
            left = sorted(firsts, key=lambda rank: (firsts[rank].places[0], rank))
            while left:
                one = self._of_rank(reference, left[0], firsts, group)
                place = firsts[left[0]].places[0]
                together = [rank for rank in left if _key(firsts[rank]) == _key(firsts[left[0]])]
                left = [rank for rank in left if rank not in together]
                if one is not None:
                    found.setdefault(len(found) << 40 | place, one)
                if len({id(self._traces[rank]) for rank in together}) > 1 and len(together) > len(group) // 2:
                    waiting.append(tuple(together))
        return list(found.values())

    def _firsts(self, reference: int, ranks: Iterable[int]) -> dict[int, Difference]:
        """By rank, where it parts from the reference."""
        found: dict[int, Difference] = {}
        for rank in dict.fromkeys(ranks):
            pair = self._pair(reference, rank) if rank != reference else None
            if pair is None or pair.first is None:
                continue
            stand = [(pair.one, pair.other)[side] for side in pair.weak]
            if stand and (any(map(self._missing, stand)) or not self._varies(pair, pair.first)):
                continue  # they wait for another rank
            found[rank] = pair.first
        return found

    def _varies(self, comparison: Comparison, first: Difference) -> bool:
        """Whether one side has gone another way before: a rank that is always the first is no fault."""
        if first.to[0] < 0 or first.raises:
            return True
        for side, trace in enumerate((comparison.one, comparison.other)):
            times, ways = history.decisions(trace, first.shape, first.offset, first.places[side])
            if ways[first.to[side]] < times:
                return True
        return False

    def _reference(self, ranks: Sequence[int]) -> int:
        """A rank to compare the others with: one of the most that did the same."""
        same = Counter(id(self._traces[rank]) for rank in ranks)
        return max(ranks, key=lambda rank: (same[id(self._traces[rank])], -rank))

    def _pair(self, one: int, other: int) -> Comparison:
        mine, theirs = self._traces[one], self._traces[other]
        if mine is theirs:
            return Comparison(mine, theirs, joined=(len(mine), len(theirs)))
        shared = frozenset(group for group in mine.groups | theirs.groups if {one, other} <= self._of_group(group))
        key = id(mine), id(theirs), shared
        if key not in self._compared:
            counts = Counted(mine, theirs, shared)
            found = compare(mine, theirs, counts)
            if found.uneven and not self._libraries <= self._hidden:
                if self._users is None:
                    self._users = traces(self._paths, self._thread, self._book, self._libraries | self._hidden)
                users = self._users[one], self._users[other]
                found = compare(*users, Counted(*users, shared))
            self._compared[key] = found
        return self._compared[key]

    def _of_group(self, group: int) -> frozenset[int]:
        found = self._members.get(group)
        if found is None:
            name = self._book.texts[group]
            given = self._given.get(name)
            if given is None:
                given = listed_in(name)
            if given is None:
                given = [rank for rank, trace in self._traces.items() if group in trace.groups]
            found = self._members[group] = frozenset(given)
        return found

    def _awaited(self) -> list[int]:
        """Ranks for which others wait in their last calls, and then those that wait."""
        awaited: dict[int, None] = {}
        waiting: dict[int, None] = {}
        for rank, trace in self._traces.items():
            missing = self._missing(trace)
            if missing:
                waiting[rank] = None
                awaited.update(dict.fromkeys(missing))
        return [rank for rank in {**awaited, **waiting} if rank in self._traces]

    def _missing(self, trace: Trace) -> list[int]:
        """The ranks that have not made the call in which a path ends."""
        if not waits(trace):
            return []
        last = len(trace.calls) - 1
        if trace.peers[last]:
            return [trace.peers[last] - 1]
        return [
            rank
            for rank in self._of_group(trace.group(last))
            if rank in self._traces and trace.keys[last] not in self._traces[rank].made
        ]

    # -- Partings

    def _of_rank(
        self, reference: int, rank: int, firsts: Mapping[int, Difference], ranks: Iterable[int]
    ) -> Parting | None:
        """The Parting of the reference and a rank, with all ranks that came there."""
        comparison, first = self._pair(reference, rank), firsts[rank]
        if comparison.role:
            own = self._own_of_role(reference, rank, first)
            if own is not None:
                return own
        together = [other for other in firsts if _key(firsts[other]) == _key(first)]
        stay = [
            other
            for other in dict.fromkeys(ranks)
            if other == reference
            or (other not in firsts and self._pair(reference, other).joined[0] > first.places[0])
            or (other in firsts and firsts[other].places[0] > first.places[0])
        ]
        by_way: dict[tuple[object, ...], list[int]] = {}
        for other in together:
            by_way.setdefault(_way_key(firsts[other], self._pair(reference, other).other), []).append(other)
        sides = [(comparison, first, 0, stay)]
        sides += [(self._pair(reference, others[0]), firsts[others[0]], 1, others) for others in by_way.values()]
        ways = [self._way(pair, one, side, sorted(those)) for pair, one, side, those in sides]
        habits = [_habit(way, *one[:3]) for way, one in zip(ways, sides, strict=True)]
        odd = history.odd(habits, by_history=first.kind != "loop")
        least = next((other for other in together if other in odd), rank)
        return self._parting(self._pair(reference, least), firsts[least], ways, odd, reference, least)

    def _parting(
        self,
        comparison: Comparison,
        first: Difference,
        ways: Sequence[Way],
        odd: tuple[int, ...],
        one: int,
        other: int,
    ) -> Parting:
        trace = comparison.one
        frame = trace.frame_at(first.places[0])
        harmless = [
            self._harmless(before, comparison, (one,) * (one != other), (other,))
            for before in _newest(comparison.harmless)
        ][:_HARMLESS]
        return Parting(
            first.kind,
            first.shape.site(first.offset),
            tuple(ways),
            text_of(self._sources, first.shape, first.offset),
            callers_of(trace, frame),
            odd,
            self._values(first, ways),
            tuple(harmless),
        )

    def _way(self, comparison: Comparison, first: Difference, side: int, ranks: Sequence[int]) -> Way:
        trace = (comparison.one, comparison.other)[side]
        to, says = where_to(trace, first, side)
        mine, theirs = first.calls[side], first.calls[1 - side]
        other = (comparison.other, comparison.one)[side]
        made = Counter(other.keys[number] for number in theirs)
        only: list[str] = []
        for number in mine:
            key = trace.keys[number]
            if made[key] > 0:
                made[key] -= 1
            elif len(only) < _CALLS and trace.operator(number) not in _NO_COLLECTIVES:
                only.append(call_text(trace, number))
        return Way(tuple(ranks), to, says, tuple(only), self._before(first, side, trace, ranks))

    def _before(self, first: Difference, side: int, trace: Trace, ranks: Sequence[int]) -> dict[int, tuple[int, int]]:
        """By rank, how often it had gone this way, and had come here, before."""
        place = first.places[side]
        if first.kind == "exception":
            raised, times = history.exceptions(trace, first.shape, first.offset, place)
            taken = raised if first.raised[side] is not None else times - raised
            return dict.fromkeys(ranks, (taken, times))
        if first.to[side] < 0:
            return {}
        times, _ = history.decisions(trace, first.shape, first.offset, place)
        found: dict[int, tuple[int, int]] = {}
        known: dict[int, tuple[int, int]] = {}
        for rank in ranks:
            own = self._traces[rank]
            if trace.book is not own.book:
                continue
            if id(own) not in known:
                came, ways = history.decisions(own, first.shape, first.offset, len(own), times)
                known[id(own)] = ways[first.to[side]], came
            found[rank] = known[id(own)]
        return found

    def _harmless(
        self, one: Difference, comparison: Comparison, mine: tuple[int, ...], theirs: tuple[int, ...]
    ) -> Harmless:
        ways = (mine, where_to(comparison.one, one, 0)[0]), (theirs, where_to(comparison.other, one, 1)[0])
        return Harmless(one.shape.site(one.offset), text_of(self._sources, one.shape, one.offset), ways)

    # -- own history

    def _own_of_role(self, one: int, other: int, first: Difference) -> Parting | None:
        """Two ranks do different work: what one of them did differently from before."""
        awaited = self._awaited()
        for rank in sorted((one, other), key=lambda rank: awaited.index(rank) if rank in awaited else len(awaited)):
            side = 0 if rank == one else 1
            own = self._own(rank, first.places[side], first.behind[side])
            if own is not None:
                return own
        return None

    def _own(self, rank: int, begin: int = 0, end: int | None = None) -> Parting | None:
        """What a rank did differently from its own earlier iterations. That way has no ranks: it is the usual one."""
        if self._plain is None:
            self._plain = traces(self._paths, self._thread, self._book, self._hidden, counted=False)
        trace = self._plain[rank]
        found = history.own_difference(trace, begin, end)
        if found is None or found.first is None:
            return None
        first = found.first
        usual = self._way(found, first, 0, ())
        usual = replace(usual, says=f"{usual.says}, {_BEFORE}" if usual.says else _BEFORE)
        this = self._way(found, first, 1, (rank,))
        return self._parting(found, first, (this, usual), (rank,), rank, rank)

    # -- sources and values

    def _end_of_step(self, rank: int, trace: Trace, until: int | None) -> int:
        """The place behind an optimizer step, counted from the last one where the first are not recorded."""
        if until is None:
            return len(trace) + 1
        steps = [place for place, text in trace.marks if text == _STEP]
        number = until - max(0, self._steps.get(rank, 0) - len(steps)) if not trace.complete else until
        return steps[number - 1] + 1 if 0 < number <= len(steps) else 0 if number <= 0 else len(trace) + 1

    def _values(self, first: Difference, ways: Sequence[Way]) -> dict[int, dict[str, str]]:
        """By rank, the names in the decision, where it was the last one at this place and its function still runs."""
        shape = first.shape
        branch = shape.branches.get(first.offset)
        found: dict[int, dict[str, str]] = {}
        for rank, (_, times) in {rank: before for way in ways for rank, before in way.before.items()}.items():
            frames = [frame for frame in self._frames.get(rank, ()) if _is_of(frame, shape)]
            if branch is None or len(frames) != 1:
                continue
            trace = self._traces[rank]
            last = history.visits(trace, shape, first.offset)
            if len(last) != times + 1 or trace.closed(trace.frame_at(last[-1])):
                continue
            values = {name: frames[0].locals[name] for name in branch.names if name in frames[0].locals}
            shown = {name: value for name, value in values.items() if not value.startswith("<")}  # an object of a class
            if shown:
                found[rank] = shown
        return found


def _is_of(frame: Frame, shape: Shape) -> bool:
    code = shape.code
    return frame.file == code.file and frame.function in (code.function, code.function.rpartition(".")[2])


def _covers(one: Parting, other: Parting) -> bool:
    """Whether the one says all that the other does."""
    return (one.site, one.kind) == (other.site, other.kind) and all(
        any(set(way.ranks) <= set(mine.ranks) for mine in one.ways) for way in other.ways
    )


def _habit(
    way: Way, comparison: Comparison, one: Difference, side: int
) -> tuple[tuple[int, ...], Mapping[int, tuple[int, int]]]:
    """The ranks of a way, and how often each went it before; after equal decisions, what it called then."""
    if one.kind not in ("call", "operation"):
        return way.ranks, way.before
    trace = (comparison.one, comparison.other)[side]
    return way.ranks, dict.fromkeys(way.ranks, history.sequences(trace, one.places[side]))


def _key(one: Difference) -> tuple[object, ...]:
    return id(one.shape), one.offset, one.places[0]


def _way_key(one: Difference, trace: Trace) -> tuple[object, ...]:
    if one.to[1] >= 0:
        return (one.to[1],)
    if one.kind == "exception":
        return (one.raised[1],)
    return tuple(trace.keys[number] for number in one.calls[1][:_CALLS])


def _rarest(differences: Sequence[Difference]) -> list[Difference]:
    """Each place once: those that are no habit first, the newest of them first. A rank that always prints explains nothing."""
    times = Counter((id(one.shape), one.offset) for one in differences)
    return sorted(_newest(differences), key=lambda one: times[id(one.shape), one.offset] > _FEW)


def _newest(differences: Iterable[Difference]) -> list[Difference]:
    """Each place once, the newest first."""
    found: dict[tuple[int, int], Difference] = {}
    for one in reversed(list(differences)):
        found.setdefault((id(one.shape), one.offset), one)
    return list(found.values())
