"""Whether ranks have parted: each tells the members of a group from where in its program it calls, and compares.

The place of a call is, for each of the user's frames from the outermost: its function, the call that leads on, and how far the
loops around that have come since the last call of this group. Two ranks at one number of a group have parted if, in the
first frame in which their places differ, a loop has come further on one of them, or one has come behind where the other is. In
branches that exclude each other, or in functions that one line may call, both may come to make the same calls: the next one tells.

Nothing of this runs until it is asked for.
"""

from __future__ import annotations

import contextlib
import dis
import os
import struct
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from torch.distributed.algorithms.join import Join

from ddpnb.recorder.events.hooks import hide
from ddpnb.recorder.files.boards import PLACE, Places
from ddpnb.recorder.stacks.evaluation import sentence
from ddpnb.recorder.stacks.path_codes import EXIT, Graph, graph
from ddpnb.recorder.stacks.signal_handlers import of_handler
from ddpnb.recorder.stacks.user_frames import file_of, frames_of, is_user_file
from ddpnb.recording.events.runs import Caller

if TYPE_CHECKING:
    from ddpnb.recorder.files.blackbox import BlackBox

_MONITORING: Any = getattr(sys, "monitoring", None)  # Python 3.12 and later
_TOOLS = (4, 3)  # the path has the first of these two
_NAME = "ddpnb hold"
_RUNS = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "process", "script.py"
)  # runs the program in a World
_BACKWARD = {op for name, op in dis.opmap.items() if name.startswith("JUMP_BACKWARD")}
_JOINS = Join.__exit__.__code__  # where a rank whose data has ended makes the calls of the others
_UNKNOWN = 0xFFFFFFFF  # how far a loop has come
_ENTERED, _USUAL, _NEW, _TIMES = 1, 2, 4, 3  # otherwise: three flags, and from this bit on how often it has begun again
_MOST_TIMES, _MANY = (1 << 28) - 1, 8
_HOT = 1024  # iterations of a loop that has never led to a collective
_MOST_FRAMES = 10_000
_RECENT = 32
_WORD, _FRAME, _LOOP = struct.Struct("<I"), struct.Struct("<III"), struct.Struct("<II")
# Their root and the others often call them from different lines, and so do those that wait for one rank at a barrier.
_OF_ROLES = frozenset({"broadcast", "reduce", "scatter", "gather", "barrier", "monitored_barrier"})

#: a frame of a place: its function, the offset of the call, and (where it begins, how far it has come: ``_Habits``) of each loop around it
Step = tuple[int, int, tuple[tuple[int, int], ...]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call is made: a digest of its operation, and frames, the outermost first."""

    operation: int
    frames: tuple[Step, ...]

    @property
    def sites(self) -> tuple[tuple[int, int], ...]:
        return tuple((key, site) for key, site, _ in self.frames)

    def packed(self) -> bytes:
        """As bytes; inner frames for which there is no room are left out."""
        parts, room = [_WORD.pack(self.operation)], PLACE - 8
        for key, site, loops in self.frames:
            part = _FRAME.pack(key, site, len(loops)) + b"".join(_LOOP.pack(*loop) for loop in loops)
            room -= len(part)
            if room < 0:
                break
            parts.append(part)
        return _WORD.pack(len(parts) - 1) + b"".join(parts)

    @classmethod
    def unpacked(cls, data: bytes) -> Place:
        """What ``packed`` has made.

        Raises:
            struct.error: it is something else.
        """
        (count,), (operation,), at = _WORD.unpack_from(data, 0), _WORD.unpack_from(data, 4), 8
        frames: list[Step] = []
        for _ in range(min(count, PLACE)):
            key, site, length = _FRAME.unpack_from(data, at)
            at += _FRAME.size
            loops = tuple(_LOOP.unpack_from(data, at + _LOOP.size * n) for n in range(min(length, PLACE)))
            at += _LOOP.size * len(loops)
            frames.append((key, site, loops))
        return cls(operation, tuple(frames))


class Function:
    """A function that has led to a call."""

    def __init__(self, code: CodeType) -> None:
        self.code = code  # so that its id stays its own
        name = f"{os.path.basename(code.co_filename)}\n{code.co_qualname}\n{code.co_firstlineno}\n{code.co_names}"
        self.key = crc32(code.co_code, crc32(name.encode("utf-8", "replace")))
        self.graph: Graph = graph(code)
        loops = self.graph.loops
        #: by where a loop begins, the loops in it
        self.inner = {head: [one for one in loops if one != head and one in loops[head]] for head in loops}
        self.leading: set[int] = set()  # loops that have led to a call
        self.lost: set[int] = set()  # loops that are not counted any more
        self._sites: dict[int, tuple[int, tuple[int, ...], int]] = {}

    def block(self, offset: int) -> int:
        """Where the block with an instruction begins."""
        starts = self.graph.starts
        return starts[max(0, bisect_right(starts, offset) - 1)]

    def around(self, offset: int) -> tuple[int, ...]:
        """The loops around an instruction, the outermost first."""
        block, loops = self.block(offset), self.graph.loops
        return tuple(
            sorted((head for head in loops if block in loops[head]), key=lambda head: (-len(loops[head]), head))
        )

    def site(self, offset: int) -> tuple[int, tuple[int, ...], int]:
        """The offset that stands for a call, the loops around it, and which of them it has begun again already (-1: none)."""
        known = self._sites.get(offset)
        if known is None:
            same, again = self.graph.copies.get(offset, (offset, EXIT))
            known = self._sites[offset] = same, self.around(offset), again
        return known

    def order(self, one: int, other: int) -> tuple[int, int] | None:
        """Two instructions, in the order in which one iteration comes to both; None: it comes to one of them at most."""
        if self.block(one) == self.block(other):
            return min(one, other), max(one, other)
        common = {*self.around(one)} & {*self.around(other)}
        if self._leads(one, other, common):
            return one, other
        return (other, one) if self._leads(other, one, common) else None

    def _leads(self, one: int, other: int, common: Collection[int]) -> bool:
        """Whether the first leads to the other without beginning one of these loops again."""
        goal, heads = self.block(other), self.graph.heads
        seen, waiting = {self.block(one)}, [self.block(one)]
        while waiting:
            at = waiting.pop()
            for way in self.graph.successors[at]:
                if heads.get(way) in common and (way in common or way <= at):
                    continue
                if way == goal:
                    return True
                if way not in seen:
                    seen.add(way)
                    waiting.append(way)
        return False

    def passes(self, one: int, other: int) -> bool:
        """Whether what comes to one instruction also comes to another one behind it, unless an exception is raised."""
        at, goal = self.block(one), self.block(other)
        seen = set[int]()
        while at not in seen and at != goal:
            seen.add(at)
            at = self.graph.after.get(at, EXIT)
        return at == goal


class Difference(NamedTuple):
    """In which of their frames two places differ (-1: by their operations), and how far a loop has come in each, if that is why."""

    depth: int
    iterations: tuple[int, int] = (0, 0)


def apart(one: Place, other: Place, functions: Mapping[int, Function], operation: str = "") -> Difference | None:
    """How two ranks that call from these places have parted; None: they have not, or that is not known yet.

    Args:
        one, other: the places.
        functions: by their key.
        operation: what is called.
    """
    if one.operation != other.operation:
        return Difference(-1)
    last = len(one.frames) - 1, len(other.frames) - 1
    for depth, (mine, theirs) in enumerate(zip(one.frames, other.frames, strict=False)):
        (key, site, loops), (other_key, other_site, other_loops) = mine, theirs
        if key != other_key:
            return None
        for (head, times), (other_head, other_times) in zip(loops, other_loops, strict=False):
            if head != other_head or _UNKNOWN in (times, other_times) or (times ^ other_times) & _ENTERED:
                break
            if times >> _TIMES != other_times >> _TIMES:
                if _come_apart(times, other_times):
                    return Difference(depth, (times >> _TIMES, other_times >> _TIMES))
                break
        if site == other_site:
            continue
        function = functions.get(key)
        ordered = function.order(site, other_site) if function is not None else None
        if function is None or ordered is None:
            return None
        is_last = depth == last[ordered[1] != site]  # of the rank that is further
        return Difference(depth) if operation not in _OF_ROLES or (is_last and function.passes(*ordered)) else None
    return None


def _come_apart(times: int, other: int) -> bool:
    """Whether a loop that came further on one rank than on another is no habit of theirs."""
    if not times & _ENTERED and 0 in (times >> _TIMES, other >> _TIMES):
        return True  # one is still in the iteration of its last call
    return bool((times & _USUAL and other & _NEW) or (times & _NEW and other & _USUAL))


class _Habits:
    """How many iterations of each loop had no call of a group between two calls of it.

    A rank may skip iterations by its data (it accumulates until it has enough): then its calls come after different numbers of them.
    """

    def __init__(self) -> None:
        self._skipped: dict[tuple[int, int], Counter[int]] = {}

    def flagged(self, key: int, head: int, times: int, entered: bool) -> int:
        """The word for a loop that has begun again so often since the last call, or since it was entered."""
        word = times << _TIMES | (_ENTERED if entered else 0)
        if not times and not entered:
            return word
        skipped = times - (not entered)
        before = self._skipped.setdefault((key, head), Counter())
        if len(before) <= _MANY:
            habit = self._habit(before)
            if skipped == habit:
                word |= _USUAL
            elif habit is not None and skipped not in before:
                word |= _NEW
            before[skipped] += 1
        return word

    @staticmethod
    def _habit(before: Counter[int]) -> int | None:
        """How many iterations it always skips: mostly none, which is taken to be so until it is known better; None: that varies."""
        ((usual, times),) = before.most_common(1) or [(0, 1)]
        most = 2 * times > before.total() if usual == 0 else times == before.total() >= _MANY
        return usual if most else None


class _Counted:
    """A frame, and how often each of its loops has begun again."""

    __slots__ = ("began", "counts", "since", "unsure")

    def __init__(self, began: int) -> None:
        self.counts: dict[int, int] = {}
        self.began = began  # at which snapshot; -1: before anything was counted
        self.since: dict[int, int] = {}  # by loop: at which snapshot it was last entered
        self.unsure: dict[int, int] = {}  # by loop: until which snapshot it was not counted


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The frames of the last call of a group, and the counts of each."""

    number: int = -1
    counts: Mapping[int, tuple[_Counted, Mapping[int, int]]] = field(
        default_factory=dict[int, tuple[_Counted, Mapping[int, int]]]
    )


class _OfGroup:
    """What is kept of a group."""

    def __init__(self, shared: Places) -> None:
        self.shared = shared
        self.armed = 0
        self.before = self.last = _Snapshot()
        self.mine: dict[int, tuple[str, Place]] = {}  # by the number of the call: the operation, and where
        self.exchanged: set[Any] = set()
        self.habits = _Habits()

    def reset(self, armed: int) -> None:
        self.armed = armed
        self.before = self.last = _Snapshot()
        self.mine.clear()
        self.exchanged.clear()
        self.habits = _Habits()

    def note(self, seq: int, operation: str, place: Place) -> None:
        self.mine[seq] = operation, place
        self.mine.pop(seq - _RECENT, None)

    def withdraw(self, seq: int) -> None:
        """The call was not made: the next one has its number."""
        self.last = self.before
        self.mine.pop(seq, None)
        self.shared.withdraw(seq)


@dataclass(frozen=True, slots=True)
class Parted:
    """A member of the group, as its place in it, that is elsewhere in the program.

    ``here``, ``there``: file, line and function of the frames in which the places differ, if that is known. The others: see
    ``model.events.runs.Elsewhere``.
    """

    member: int
    here: Caller
    there: Caller
    iterations: tuple[int, int] = (0, 0)
    exchanged: int = 0


class Partings:
    """Compares the place of each call while it is on.

    Args:
        box: silent in a forked child.
        shared: the file in which the members of a group share their places; None: there is nothing to compare.
    """

    def __init__(self, box: BlackBox, shared: Callable[[Any], Places | None]) -> None:
        self._silent, self._shared = box.silent, shared
        self._tool = -1
        self._armed = 0  # how often it was switched on; its negative while it is off
        self._number = 0  # of the next snapshot
        self._began: dict[int, int] = {}  # by the id of a frame: the number of the snapshot that came next
        self._frames: dict[int, _Counted] = {}  # by the id of the frame, once a loop has begun again
        self._functions: dict[int, Function] = {}  # by the id of the code
        self._by_key: dict[int, Function] = {}
        self._followed: set[int] = set()  # ids of code whose jumps are reported
        self._kept: list[CodeType] = []
        self._is_user: dict[int, bool] = {}
        self.trouble = ""

    @staticmethod
    def possible() -> bool:
        """Whether this Python tells what is needed."""
        return _MONITORING is not None

    @property
    def on(self) -> bool:
        return self._armed > 0

    def switch(self, on: bool) -> None:
        """Begin to compare, or end it. Called from any thread."""
        if on == self.on:
            return
        self._armed = 1 - self._armed if on else -self._armed
        if not on:
            self._leave()
            return
        self.trouble = ""
        tool = next((tool for tool in _TOOLS if _MONITORING.get_tool(tool) is None), -1)
        if tool < 0:
            self.trouble = "other tools use sys.monitoring: iterations are not compared"
            return
        self._tool = tool
        events = _MONITORING.events
        _MONITORING.use_tool_id(tool, _NAME)
        begins, jumps = self._callbacks()
        _MONITORING.register_callback(tool, events.PY_START, begins)
        _MONITORING.register_callback(tool, events.JUMP, jumps)
        for ident in list(sys._current_frames()):
            for frame in frames_of(ident):
                if id(frame.f_code) not in self._followed:
                    self._follow(frame.f_code, frame)
        _MONITORING.set_events(tool, events.PY_START)

    def _leave(self) -> None:
        tool, self._tool = self._tool, -1
        if tool >= 0 and _MONITORING.get_tool(tool) == _NAME:
            _MONITORING.set_events(tool, 0)
            for code in self._kept:
                if id(code) in self._followed:
                    _MONITORING.set_local_events(tool, code, 0)
            for event in (_MONITORING.events.PY_START, _MONITORING.events.JUMP):
                _MONITORING.register_callback(tool, event, None)
            _MONITORING.free_tool_id(tool)
        for known in (
            self._began,
            self._frames,
            self._functions,
            self._by_key,
            self._followed,
            self._kept,
            self._is_user,
        ):
            known.clear()

    # -- what Python reports

    def _callbacks(self) -> tuple[Any, Any]:
        silent, began, frames, functions = self._silent, self._began, self._frames, self._functions
        frame_at = sys._getframe
        disable = _MONITORING.DISABLE

        def begins(code: CodeType, _offset: int) -> Any:
            try:
                if silent or self._tool < 0:
                    return disable
                frame = frame_at(1)
                if id(code) not in self._followed and not self._follow(code, frame):
                    return disable
                if len(began) > _MOST_FRAMES:
                    began.clear()
                    frames.clear()
                began[id(frame)] = self._number
                if frames:
                    frames.pop(id(frame), None)
            except BaseException as error:
                self._failed(error)
            return None

        def jumps(code: CodeType, offset: int, target: int) -> Any:
            try:
                if silent or self._tool < 0 or target > offset:
                    return disable
                function = functions.get(id(code)) or self._function(code)
                head = function.graph.heads.get(target)
                if head is None:
                    return disable
                frame = frame_at(1)
                counted = frames.get(id(frame))
                if counted is None:
                    counted = frames[id(frame)] = _Counted(began.get(id(frame), -1))
                times = counted.counts[head] = counted.counts.get(head, 0) + 1
                for inner in function.inner[head]:
                    counted.counts[inner] = 0
                    counted.since[inner] = self._number
                if not times % _HOT and head not in function.leading:
                    function.lost.add(head)
                    return disable
            except BaseException as error:
                self._failed(error)
            return None

        return hide(begins, below=True), hide(jumps, below=True)

    def _failed(self, error: BaseException) -> None:
        """Raises what a signal handler has raised."""
        if of_handler(error):
            raise error
        if not isinstance(error, RecursionError):
            self.trouble = f"comparing where ranks are failed: {sentence(error)}"
            self._armed = -abs(self._armed)
            with contextlib.suppress(Exception):
                self._leave()

    def _follow(self, code: CodeType, frame: FrameType) -> bool:
        """Count the loops of code from here on, if it is the user's and has any."""
        if not self._of_user(frame) or not any(op in _BACKWARD for op in code.co_code[::2]):
            return False
        self._kept.append(code)
        self._followed.add(id(code))
        _MONITORING.set_local_events(self._tool, code, _MONITORING.events.JUMP)
        return True

    def _of_user(self, frame: FrameType) -> bool:
        known = self._is_user.get(id(frame.f_code))
        if known is None:
            known = is_user_file(file_of(frame))
            self._kept.append(frame.f_code)
            self._is_user[id(frame.f_code)] = known
        return known

    def _function(self, code: CodeType) -> Function:
        function = self._functions[id(code)] = Function(code)
        self._by_key[function.key] = function
        return function

    # -- at a call

    def look(self, operation: str, group: Any, seq: int, frame: FrameType | None) -> list[Parted]:
        """Announce where call ``seq`` of a group is made; returns who is elsewhere, since here.

        Args:
            operation: its name.
            group: its group.
            seq: its number.
            frame: the user's frame that makes it.
        """
        try:
            return self._look(operation, group, seq, frame)
        except Exception as error:
            self._failed(error)
            return []

    def _look(self, operation: str, group: Any, seq: int, frame: FrameType | None) -> list[Parted]:
        of_group = self._of_group(group)
        place = self._place(operation, of_group, frame) if of_group is not None else None
        if of_group is None or place is None:
            return []
        others = of_group.shared.announce(seq, place.packed())
        of_group.note(seq, operation, place)
        found: list[Parted] = []
        for member, data in others:
            theirs = Place.unpacked(data)
            different, exchanged = apart(place, theirs, self._by_key, operation), 0
            if different is None:
                exchanged = self._exchange(of_group, seq, place, theirs, member)
                pairs = enumerate(zip(place.sites, theirs.sites, strict=False))
                depth = next((depth for depth, (mine, other) in pairs if mine != other), -1)
                different = Difference(depth) if exchanged else None
            elif self._were_apart(of_group, seq - 1, member):
                continue
            if different is not None:
                here, there = (self._line(one, different.depth) for one in (place, theirs))
                found.append(Parted(member, here, there, different.iterations, exchanged))
        return found

    def _line(self, place: Place, depth: int) -> Caller:
        key, site, _ = place.frames[depth] if 0 <= depth < len(place.frames) else (0, 0, ())
        function = self._by_key.get(key)
        if function is None:
            return Caller()
        code = function.code
        line = next((line for start, end, line in code.co_lines() if start <= site < end), None)
        return Caller(file=code.co_filename, line=line or code.co_firstlineno, function=code.co_name)

    def _were_apart(self, group: _OfGroup, seq: int, member: int) -> bool:
        earlier, theirs = group.mine.get(seq), group.shared.of(seq, member)
        if earlier is None or not theirs:
            return False
        return apart(earlier[1], Place.unpacked(theirs), self._by_key, earlier[0]) is not None

    def _exchange(self, group: _OfGroup, seq: int, mine: Place, theirs: Place, member: int) -> int:
        """The earlier call at which each of two ranks was where now the other is; 0: there is none, or it is known."""
        sites = mine.sites, theirs.sites
        if sites[0] == sites[1] or frozenset(sites) in group.exchanged:
            return 0
        for number in range(seq - 1, seq - _RECENT, -1):
            earlier = group.mine.get(number)
            if earlier is not None and earlier[1].sites == sites[1]:
                data = group.shared.of(number, member)
                if data and Place.unpacked(data).sites == sites[0]:
                    group.exchanged.add(frozenset(sites))
                    return number
        return 0

    def _of_group(self, group: Any) -> _OfGroup | None:
        if group.places is None:
            try:
                shared = self._shared(group)
            except OSError as error:
                self.trouble = f"no room to compare where ranks are: {error.strerror}"
                return None
            if shared is None:
                return None
            group.places = _OfGroup(shared)
        if group.places.armed != self._armed:
            group.places.reset(self._armed)
        return group.places

    def _place(self, operation: str, group: _OfGroup, frame: FrameType | None) -> Place | None:
        """Where a call is made; None: by a rank whose data has ended, in place of its training."""
        inner: FrameType | None = sys._getframe(1)
        while inner is not None and inner is not frame:
            if inner.f_code is _JOINS:
                return None
            inner = inner.f_back
        stack: list[FrameType] = []
        while frame is not None and frame.f_code.co_filename != _RUNS:
            if self._of_user(frame):
                stack.append(frame)
            frame = frame.f_back
        number, last = self._number, group.last
        self._number += 1
        counts: dict[int, tuple[_Counted, Mapping[int, int]]] = {}
        steps = [self._step(one, number, group, counts) for one in reversed(stack)]
        group.before, group.last = last, _Snapshot(number, counts)
        return Place(crc32(operation.encode()), tuple(steps))

    def _step(
        self, frame: FrameType, number: int, group: _OfGroup, counts: dict[int, tuple[_Counted, Mapping[int, int]]]
    ) -> Step:
        code, last = frame.f_code, group.last
        function = self._functions.get(id(code)) or self._function(code)
        site, around, again = function.site(frame.f_lasti)
        if not around:
            return function.key, site, ()
        counted = self._frames.get(id(frame))
        if counted is None:
            counted = self._frames[id(frame)] = _Counted(self._began.get(id(frame), -1))
            if self._tool >= 0 and id(code) not in self._followed:
                self._follow(code, frame)
        now = dict(counted.counts)
        if again in around:
            now[again] = now.get(again, 0) + 1
        counts[id(counted)] = counted, now
        lost = function.lost if self._tool >= 0 else around
        loops: list[tuple[int, int]] = []
        for head in around:
            times = None if head in lost else self._times(counted, head, now.get(head, 0), last)
            loops.append((head, _UNKNOWN if times is None else group.habits.flagged(function.key, head, *times)))
        self._leads(function, around, counted, number)
        return function.key, site, tuple(loops)

    @staticmethod
    def _times(counted: _Counted, head: int, now: int, last: _Snapshot) -> tuple[int, bool] | None:
        """How often a loop has begun again since the last call of the group, or since it was entered after that (True)."""
        since = counted.since.get(head, counted.began)
        unsure = counted.unsure.get(head, -1)
        then = last.counts.get(id(counted))
        if then is None or since > last.number:
            return (min(now, _MOST_TIMES), True) if since > unsure else None
        return (min(now - then[1].get(head, 0), _MOST_TIMES), False) if last.number >= unsure else None

    def _leads(self, function: Function, around: Iterable[int], counted: _Counted, number: int) -> None:
        """These loops lead to calls: count them also where they run very often."""
        function.leading.update(around)
        lost = function.lost.intersection(around)
        if lost and self._tool >= 0:
            function.lost -= lost
            counted.unsure.update(dict.fromkeys(lost, number))
            for events in (0, _MONITORING.events.JUMP):
                _MONITORING.set_local_events(self._tool, function.code, events)
