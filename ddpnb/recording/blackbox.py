"""The black box: one memory-mapped file per rank, written at the door, readable from any process of the host.

Layout (little-endian): a header, a table of strings, and four rings: of calls, of events, of marks (clocks read at
steps), and of checkpoints. A record refers to strings (JSON texts: groups, signatures, sites, facts) by their number. The
writer never waits for a reader; a reader drops what was being written.

Checkpoints have a ring of their own, in which the first ones stay, and hold their names: a script may pass very many, each
with another name, and neither the other events nor the strings may be lost for them.

The table begins again with each run (``model.strings``).

Nothing in a box is trusted: sizes are bounded, JSON is the only decoder, and entries that do not parse are left
out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from ddpnb.recording.calls import NO_SITE, Call, CallState, Group, Signature, Site
from ddpnb.recording.codec import JSON
from ddpnb.recording.events import Event, EventState, read
from ddpnb.recording.events.runs import Checkpoint
from ddpnb.recording.marks import MARK_KINDS, Mark
from ddpnb.recording.shared import readable
from ddpnb.recording.strings import GENERATIONS, PLACE_BITS, Strings

MAGIC = b"ddpnbBB1"
HEADER_SIZE = 4096
STRINGS_SIZE = 4 << 20
CALLS = 4096  # records in the ring of calls
EVENTS = 512
MARKS = 4096
CHECKPOINTS = 256
FIRST_CHECKPOINTS = 64  # of these, so many are the first of the run, the others its last

# magic, version, rank, pid, main thread (its identifier >> 6, as in the records)
IDENTITY = struct.Struct("<8sIIII")
# number of calls begun, time of the last change; kept apart so that one small write updates both
PROGRESS = struct.Struct("<QQ")
PROGRESS_AT = 32
# bytes of strings used, number of events begun, run number, run state, optimizer steps, and the
# first call and event of the run
STATUS = struct.Struct("<QQIIQQQ")
STATUS_AT = 64
STEPS_AT = STATUS_AT + 24
# number of marks, and the first of the run
MARKED = struct.Struct("<QQ")
MARKED_AT = 128
FORWARDS_AT = 144  # forwards of wrapped models in the run
RUN_IDLE, RUN_ACTIVE, RUN_ENDED = 0, 1, 2
# generation of the table of strings, and how many strings it had no room for
TABLE = struct.Struct("<II")
TABLE_AT = 160
PASSED_AT = 168  # number of the last checkpoint of the run
ALIVE_AT = 176  # time of the last sign of life, where the rank gives any (``recorder.channel.heartbeat``)
OWN_AT = 184  # CPU time of the threads that answer requests
_HEAD = 256  # bytes that hold all of these

# number + 1, group string, seq, signature string, site string, state, thread, peer, tag,
# timeout in ms, turn, entered, issued, done
CALL = struct.Struct("<QIIIIIIiiIIQQQ")
CALL_SIZE = 72
CALL_STATE_AT = 24  # within a record: state, timeout, time when done
CALL_TIMEOUT_AT = 40
CALL_ENTERED_AT = 48
CALL_DONE_AT = 64
# number + 1, title string, facts string, state, string of the facts learned by its end, began, ended
EVENT = struct.Struct("<QIIIIQQ")
EVENT_SIZE = 40
EVENT_STATES: tuple[EventState, ...] = ("open", "done", "failed")
# number + 1, place in MARK_KINDS, thread, torch's threads, steps; time, CPU of the thread, CPU of the process, data
MARK = struct.Struct("<QIIIIQQQQ")
MARK_SIZE = 56
# number, run, site string, visit, time, bytes of the name; the name follows
CHECKPOINT = struct.Struct("<QIIQQI")
CHECKPOINT_SIZE = 256
MARK_BEGIN, MARK_BACKWARD, MARK_STEP, MARK_END, MARK_HELD, MARK_RESUMED = range(len(MARK_KINDS))

STRINGS_AT = HEADER_SIZE
CALLS_AT = STRINGS_AT + STRINGS_SIZE
EVENTS_AT = CALLS_AT + CALLS * CALL_SIZE
MARKS_AT = EVENTS_AT + EVENTS * EVENT_SIZE
CHECKPOINTS_AT = MARKS_AT + MARKS * MARK_SIZE
BOX_SIZE = CHECKPOINTS_AT + CHECKPOINTS * CHECKPOINT_SIZE

_GROUP, _SIGNATURE, _SITE = Group.from_json, partial(JSON.read, Signature), Site.from_json  # what reads strings

assert STRINGS_SIZE <= 4 << PLACE_BITS
assert CALL.size <= CALL_SIZE and EVENT.size <= EVENT_SIZE and MARK.size <= MARK_SIZE


def checkpoint_slot(number: int) -> int:
    """Where in its ring the checkpoint with this number is: the first ones are not overwritten."""
    place, later = number - 1, CHECKPOINTS - FIRST_CHECKPOINTS
    return place if place < FIRST_CHECKPOINTS else FIRST_CHECKPOINTS + (place - FIRST_CHECKPOINTS) % later


@dataclass(frozen=True, slots=True)
class Status:
    """The status vector: a few numbers that show whether a rank makes progress, in one read."""

    pid: int = 0
    main_thread: int = 0
    calls: int = 0
    progress_ns: int = 0
    events: int = 0
    run: int = 0
    run_state: int = RUN_IDLE
    steps: int = 0
    first_call: int = 0
    first_event: int = 0
    forwards: int = 0

    @property
    def events_forgotten(self) -> int:
        """How many events of the current run have left the ring."""
        return max(0, self.events - self.first_event - EVENTS)


class BoxReader:
    """Reads one box. Any thread may read.

    Args:
        source: ``FileBytes``, or anything with the buffer protocol (an mmap, bytes).

    Raises:
        ValueError: the source is not a black box.
    """

    def __init__(self, source: Any) -> None:
        self._source = readable(source)
        if len(self._source) < BOX_SIZE or self._source.read(0, 8) != MAGIC:
            raise ValueError("not a black box of ddpnb")
        self._strings = Strings()

    def close(self) -> None:
        self._source.close()

    @property
    def status(self) -> Status:
        head = self._source.read(0, _HEAD)
        _, _, _, pid, main = IDENTITY.unpack_from(head, 0)
        calls, progress_ns = PROGRESS.unpack_from(head, PROGRESS_AT)
        _, events, run, run_state, steps, *first = STATUS.unpack_from(head, STATUS_AT)
        (forwards,) = struct.unpack_from("<Q", head, FORWARDS_AT)
        return Status(pid, main, calls, progress_ns, events, run, run_state, steps, *first, forwards=forwards)

    @property
    def dropped(self) -> int:
        """How many names and facts of the current run did not fit into the table of strings."""
        return TABLE.unpack_from(self._source.read(TABLE_AT, TABLE.size))[1]

    @property
    def alive_ns(self) -> int:
        """When the process gave its last sign of life; 0: it gives none."""
        return struct.unpack("<Q", self._source.read(ALIVE_AT, 8))[0]

    @property
    def own_ns(self) -> int:
        """CPU time that the process has used to answer requests."""
        return struct.unpack("<Q", self._source.read(OWN_AT, 8))[0]

    def _extent(self) -> tuple[int, int]:
        """Generation of the table of strings, and how many bytes of it are used."""
        head = self._source.read(0, _HEAD)
        used = STATUS.unpack_from(head, STATUS_AT)[0]
        return TABLE.unpack_from(head, TABLE_AT)[0] % GENERATIONS, min(used, STRINGS_SIZE)

    def _read_strings(self) -> None:
        self._strings.follow(self._extent, lambda at, size: self._source.read(STRINGS_AT + at, size))

    def string(self, number: int) -> Any:
        """The JSON behind a number; None when there is none."""
        self._read_strings()
        return self._strings.get(number)

    def _records(
        self, ring: int, slots: int, record: struct.Struct, size: int, numbers: Sequence[int]
    ) -> Iterator[Any]:
        """The fields of the records with these numbers. Neighbours are read together."""
        block, first, end = b"", 0, 0  # the slots that ``block`` holds
        for position, number in enumerate(numbers):
            slot = number % slots
            if not first <= slot < end:
                first, end = slot, min(slots, slot + len(numbers) - position)
                block = self._source.read(ring + first * size, (end - first) * size)
            yield record.unpack_from(block, (slot - first) * size)

    def calls(self, last: int = CALLS) -> tuple[Call, ...]:
        """The last calls of the current run, oldest first, at most ``last`` of them."""
        status = self.status
        return self.these(range(max(status.first_call, status.calls - min(last, CALLS)), status.calls))

    def these(self, numbers: Iterable[int]) -> tuple[Call, ...]:
        """The calls with these numbers, without those that have left the ring or are being written."""
        numbers = list(numbers)
        records = list(self._records(CALLS_AT, CALLS, CALL, CALL_SIZE, numbers))
        self._read_strings()  # behind them: whatever they name is there then
        found = (self._call(number, fields) for number, fields in zip(numbers, records, strict=True))
        return tuple(call for call in found if call is not None)

    def states(self, first: int, end: int) -> bytes:
        """The states of the calls from one number to another, whose records may have been used again; at most as many as the ring has."""
        begin, count = first % CALLS, min(end - first, CALLS)
        until = min(begin + count, CALLS)
        parts = ((begin, until), (0, begin + count - until))
        blocks = (self._source.read(CALLS_AT + at * CALL_SIZE, (to - at) * CALL_SIZE) for at, to in parts if to > at)
        return b"".join(block[CALL_STATE_AT::CALL_SIZE] for block in blocks)

    def _call(self, number: int, fields: tuple[int, ...]) -> Call | None:
        stamp, group, seq, signature, site, state, thread, peer, tag, timeout, turn, *times = fields
        if stamp != number + 1 or not 1 <= state <= len(CallState):
            return None  # being overwritten
        # While a call is in flight, the time of its end is that of the last question whether it is complete.
        asked, done = (times[2], 0) if CallState(state).in_flight else (0, times[2])
        return Call(
            number,
            self._strings.decoded(group, _GROUP, Group(())),
            seq,
            self._strings.decoded(signature, _SIGNATURE, Signature("?")),
            self._strings.decoded(site, _SITE, NO_SITE),
            CallState(state),
            thread,
            peer,
            tag,
            times[0],
            times[1],
            done,
            timeout,
            turn,
            asked,
        )

    def _facts(self, number: int) -> dict[str, Any]:
        value = self._strings.get(number) if number else None
        return cast("dict[str, Any]", dict(value)) if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownArgumentType]

    def events(self) -> tuple[Event, ...]:
        """The last events of the current run with its checkpoints, in the order in which they began."""
        status = self.status
        numbers = range(max(status.first_event, status.events - EVENTS), status.events)
        records = list(self._records(EVENTS_AT, EVENTS, EVENT, EVENT_SIZE, numbers))
        self._read_strings()  # behind them: whatever they name is there then
        found: list[Event] = []
        for number, fields in zip(numbers, records, strict=True):
            state: int
            stamp, title, facts, state, learned, began, ended = fields
            if stamp == number + 1 and state < len(EVENT_STATES):
                known = self._facts(facts) | self._facts(learned)
                found.append(read(str(self._facts(title).get("phase", "?")), known, EVENT_STATES[state], began, ended))
        passed = self._checkpoints(status.run)
        return tuple(sorted([*found, *passed], key=lambda event: event.began_ns) if passed else found)

    def _checkpoints(self, run: int) -> list[Event]:
        """The first and the last checkpoints of the run."""
        (last,) = struct.unpack("<Q", self._source.read(PASSED_AT, 8))
        if not last:
            return []
        data = self._source.read(CHECKPOINTS_AT, min(last, CHECKPOINTS) * CHECKPOINT_SIZE)
        self._read_strings()
        found: list[Event] = []
        for at in range(0, len(data), CHECKPOINT_SIZE):
            number, of_run, site, visit, now, size = CHECKPOINT.unpack_from(data, at)
            if of_run == run and 0 < number <= last and checkpoint_slot(number) == at // CHECKPOINT_SIZE:
                begin = at + CHECKPOINT.size
                name = data[begin : begin + min(size, CHECKPOINT_SIZE - CHECKPOINT.size)].decode("utf-8", "ignore")
                facts = self._facts(site) | {"name": name, "number": number, "visit": visit}
                found.append(read(Checkpoint.TITLE, facts, "done", now, now))
        return found

    def marks(self, since: int = 0, last: int = MARKS) -> tuple[Mark, ...]:
        """The last marks of the current run from number ``since`` on, oldest first, at most ``last`` of them."""
        total, first = MARKED.unpack_from(self._source.read(MARKED_AT, MARKED.size))
        numbers = range(max(first, since, total - min(last, MARKS)), total)
        found: list[Mark] = []
        for number, fields in zip(numbers, self._records(MARKS_AT, MARKS, MARK, MARK_SIZE, numbers), strict=True):
            kind: int
            stamp, kind, thread, threads, steps, at, thread_ns, cpu, data = fields
            if stamp == number + 1 and kind < len(MARK_KINDS):
                found.append(Mark(number, MARK_KINDS[kind], at, thread, thread_ns, cpu, data, steps, threads))
        return tuple(found)


class News:
    """The changes in a box since the last read: each new call, and each call whose state has changed.

    ``look`` costs as much as there is news. A call that left the ring before it was seen is counted.
    """

    def __init__(self, reader: BoxReader) -> None:
        self._reader = reader
        self._run = -1
        self._next_call = 0
        self._next_mark = 0
        self._open: dict[int, CallState | None] = {}  # state when last seen; None: its record was being written

    def look(self) -> tuple[tuple[Call, ...], tuple[Mark, ...], int]:
        """Calls, marks, and how many calls were lost since the last look."""
        status = self._reader.status
        if status.run != self._run:
            self._run, self._next_call, self._next_mark = status.run, status.first_call, 0
            self._open.clear()
        oldest = max(self._next_call, status.calls - CALLS)
        lost = oldest - self._next_call if status.calls > self._next_call else 0
        for number in [number for number in self._open if number < status.calls - CALLS]:
            lost += self._open.pop(number) is None
        for number in range(oldest, status.calls):
            self._open[number] = None
        self._next_call = max(self._next_call, status.calls)
        found = [
            call
            for call in self._reader.these(self._changed())
            if call.state is not self._open[call.number] and call.state is not CallState.HELD  # it has not begun
        ]
        for call in found:
            if call.state.in_flight:
                self._open[call.number] = call.state
            else:
                del self._open[call.number]
        # Read after the calls: whatever a call that is over has before its end is among them.
        marks = self._reader.marks(self._next_mark)
        if marks:
            self._next_mark = marks[-1].number + 1
        return tuple(found), marks, lost

    def _changed(self) -> list[int]:
        """Those whose state is another one than before: many may be in flight, and each look asks for all of them."""
        if not self._open:
            return []
        first = min(self._open)
        states = self._reader.states(first, max(self._open) + 1)
        return sorted(number for number, known in self._open.items() if states[(number - first) % CALLS] != known)
