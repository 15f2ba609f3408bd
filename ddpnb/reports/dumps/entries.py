"""What a flight-recorder dump holds, as plain rows: a table of its different calls, and what differs from entry to entry.

This runs in the processes of ``processes``, so it needs the standard library alone. Fields may hold anything: what is
absent or of another type is unknown.
"""

from __future__ import annotations

import json
import marshal
from array import array
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from ddpnb.reports.dumps.fields import LARGEST, MOST_TENSORS, config, rank, sizes, status, text, texts, whole
from ddpnb.reports.pickles import Refused

MOST_ENTRIES = 200_000  # the last ones
MOST_FRAMES = 256

DROPPED, ISSUED, WAITING, COMPLETED = 0, 2, 3, 4  # the states of an entry: those of model.calls.CallState
SILENT = ("gloo", "mpi", "ucc")  # backends that note no completion: they retire an entry when it ends, however it ends
#: the columns, with their types
COLUMNS = {"call": "I", "seq": "q", "record": "q", "created": "q", "done": "q", "thread": "B", "state": "B"}
_KEYS = ("entries", "pg_config", "pg_status", "nccl_comm_state")
#: what calls have in common that are made again and again
_ALIKE = (
    "profiling_name", "process_group", "pg_id", "is_p2p", "input_sizes", "output_sizes", "input_dtypes", "output_dtypes",
    "timeout_ms",
)  # fmt: skip


class _Row(NamedTuple):
    """One of the different calls of a dump."""

    name: str
    group: int
    message: bool
    tensors: tuple[tuple[Any, ...], ...]  # sizes and dtypes, of inputs and of outputs
    timeout_ms: int
    frames: tuple[int, ...]


class _Entry:
    """What differs between entries of one call."""

    __slots__ = ("call", "created", "done", "pair", "record", "retired", "seq", "started", "state", "thread")

    def __init__(self, held: dict[Any, Any], call: int, number: str) -> None:
        self.call = call
        self.created = whole(held.get("time_created_ns"))
        self.done = whole(held.get("time_discovered_completed_ns"))
        self.seq = whole(held.get(number))
        self.pair = whole(held.get("p2p_seq_id"))
        self.record = whole(held.get("record_id"))
        self.retired = held.get("retired")
        self.started = held.get("state") == "started"
        self.thread, self.state = 0, ISSUED


def columns(dump: Any) -> tuple[bytes, bytes, list[array[int]]]:
    """Reduce a dump.

    Args:
        dump: what ``pickles.loads`` gave.

    Returns:
        Its calls as JSON (the same for ranks that do the same), the facts of the rank as JSON, and ``COLUMNS``: the call (a
        place in the table), its numbers in the group and in the recorder, when it was created and completed, the thread
        and the state.

    Raises:
        Refused: it is no dump of a flight recorder.
    """
    dump = {"entries": dump} if isinstance(dump, list) else dump  # torch 2.2 dumps the entries alone
    if not isinstance(dump, dict) or not any(key in dump for key in _KEYS):
        raise Refused("is not a dump of the flight recorder: it has neither entries nor groups")
    listed: list[Any] = dump["entries"] if isinstance(dump.get("entries"), list) else []
    entries = [entry for entry in listed[-MOST_ENTRIES:] if type(entry) is dict]
    if listed and not any("profiling_name" in entry for entry in entries):
        raise Refused("is not a dump of the flight recorder: its entries name no operations")
    own = _Dump(entries, status(dump))
    facts = {
        "version": text(dump.get("version"))[:32],
        "rank": rank(dump),
        "records": own.records,
        "threads": own.threads,
        "pg_config": config(dump.get("pg_config")),
        "pg_status": [[text(key), *found] for key, found in status(dump).items()],
        "left_out": len(listed) - len(entries),
    }
    found = [array(code, map(attrgetter(name), own.entries)) for name, code in COLUMNS.items()]
    return json.dumps(own.table()).encode(), json.dumps(facts).encode(), found


class _Dump:
    """The different calls of a dump, and its entries, each with its state."""

    def __init__(self, entries: list[dict[Any, Any]], status: dict[Any, list[int]]) -> None:
        self._rows: list[_Row] = []
        self._places: dict[_Row, int] = {}
        self._groups: dict[tuple[str, str, str], int] = {}
        self._frames: dict[tuple[str, int, str], int] = {}
        self._status = status
        self.records = bool(entries) and "record_id" in entries[0]
        number = "collective_seq_id" if any("collective_seq_id" in entry for entry in entries[:1]) else "seq_id"
        self.entries = [_Entry(held, call, number) for held, call in zip(entries, self._calls(entries), strict=True)]
        ids = [held.get("thread_id") for held in entries]
        threads = [own if type(own) is str else text(own) for own in ids]
        names = {name: place for place, name in enumerate(dict.fromkeys(threads))}
        self.threads = [text(name)[:64] for name in list(names)[:256]]
        timed = any(entry.created for entry in self.entries)
        ended = any(held.get("state") == "completed" for held in entries) or any(entry.done for entry in self.entries)
        groups = list(self._groups)
        for place, (held, entry) in enumerate(zip(entries, self.entries, strict=True)):
            entry.thread = min(names[threads[place]], 255)
            entry.record = entry.record if self.records else place
            if not timed:  # torch 2.2
                entry.created = min(max(whole(held.get("time_created_us")), 0), LARGEST // 1000) * 1000
            entry.state = COMPLETED if self._completed(held, entry, groups, ended=ended) else ISSUED
        self._join()
        self._wait()
        if number == "seq_id":
            self._number()

    def _calls(self, entries: list[dict[Any, Any]]) -> list[int]:
        """The place in the table of each entry's call. Entries are compared as bytes, and their frames by which objects they are."""
        known: dict[tuple[bytes, tuple[int, ...]], int] = {}
        calls: list[int] = []
        for held in entries:
            frames = held.get("frames")
            frames = frames[:MOST_FRAMES] if isinstance(frames, (list, tuple)) else []
            try:
                key = marshal.dumps(list(map(held.get, _ALIKE)), 2), tuple(map(id, frames))
            except ValueError:
                raise Refused("is nested too deeply for a dump") from None
            place = known.get(key)
            if place is None:
                place = known[key] = self._place(self._row(held, frames))
            calls.append(place)
        return calls

    def _row(self, held: dict[Any, Any], frames: Any) -> _Row:
        named = held.get("process_group")
        name, label = named if isinstance(named, (list, tuple)) and len(named) == 2 else (None, "")
        number = text(held.get("pg_id"))
        group = (text(number if name is None else name), text(label), number)
        profiled = text(held.get("profiling_name"))[:200]
        message = held.get("is_p2p") is True or profiled.rpartition(":")[2].startswith(("send", "recv"))
        tensors = (
            sizes(held.get("input_sizes")), sizes(held.get("output_sizes")),
            texts(held.get("input_dtypes")), texts(held.get("output_dtypes")),
        )  # fmt: skip
        place = self._groups.setdefault(group, len(self._groups))
        return _Row(profiled, place, message, tensors, whole(held.get("timeout_ms")), tuple(map(self._frame, frames)))

    def _frame(self, frame: Any) -> int:
        held = frame if isinstance(frame, dict) else {}
        place = text(held.get("filename")), whole(held.get("line")), text(held.get("name"))[:200]
        return self._frames.setdefault(place, len(self._frames))

    def _place(self, row: _Row) -> int:
        place = self._places.setdefault(row, len(self._rows))
        if place == len(self._rows):
            self._rows.append(row)
        return place

    def table(self) -> dict[str, Any]:
        stacks: dict[tuple[int, ...], int] = {}
        rows = [
            (*row[:3], *row.tensors[:2], row.tensors[2] or row.tensors[3], stacks.setdefault(row.frames, len(stacks)))
            for row in self._rows
        ]
        return {"calls": rows, "groups": list(self._groups), "frames": list(self._frames), "stacks": list(stacks)}

    def _completed(
        self, held: dict[Any, Any], entry: _Entry, groups: list[tuple[str, str, str]], *, ended: bool
    ) -> bool:
        """Whether a call has completed. ``ended``: the dump notes when calls do."""
        row, noted = self._rows[entry.call], held.get("state")
        if noted == "completed" or entry.done > 0:
            # After an abort NCCL's kernels end too: what took longer than its time-out was waited in.
            longest = row.timeout_ms * 1_000_000 if row.timeout_ms > 0 else LARGEST
            return not 0 < entry.created < entry.done - longest
        if entry.retired is True:
            return row.name.startswith(SILENT) or not (ended or row.name.startswith("nccl"))
        if noted in ("scheduled", "issued", "started") or "retired" in held:
            return False
        name, _, number = groups[row.group]  # an entry that says nothing of its state
        return entry.seq <= (self._status.get(number) or self._status.get(name) or (-1, -1, -1))[2]

    def _join(self) -> None:
        """Join the parts of batches (``batch_isend_irecv``, coalesced collectives) with the entry that closes each.

        Parts keep the state "scheduled" forever; that of the closing entry is theirs. Sends and receives stay, a
        collective becomes one call.
        """
        closing = {place for place, row in enumerate(self._rows) if row.name.lower().endswith("coalesced")}
        for end, last in enumerate(self.entries) if closing else ():
            if last.call not in closing:
                continue
            row = self._rows[last.call]
            parts: list[_Entry] = []
            for place in range(end - 1, max(-1, end - 4 * MOST_TENSORS), -1):
                part = self.entries[place]
                own = self._rows[part.call]
                if own.group != row.group:
                    continue
                same = part.pair == last.pair if own.message else part.seq == last.seq
                if part.call in closing or not same or own.message < row.message:
                    break
                if parts and own.message != self._rows[parts[-1].call].message:
                    break
                parts.append(part)
            self._close(parts[::-1], last)

    def _close(self, parts: list[_Entry], last: _Entry) -> None:
        if not parts:
            return
        if self._rows[parts[0].call].message:
            for part in parts:
                part.state, part.done, part.started = last.state, last.done, last.started
            last.state = DROPPED
            return
        last.call = self._place(self._batch([self._rows[part.call] for part in parts], self._rows[last.call]))
        for part in parts:
            part.state = DROPPED

    @staticmethod
    def _batch(rows: list[_Row], last: _Row) -> _Row:
        """The call that a batch is: all its tensors, at the line of its first part."""
        alike = len({row.name for row in rows}) == 1
        plain = last.name.lower().endswith((":coalesced", ":coalesced_coalesced"))
        name = rows[0].name + "_coalesced" if alike and plain else last.name
        tensors = tuple(tuple(chain.from_iterable(row.tensors[k] for row in rows))[:MOST_TENSORS] for k in range(4))
        return _Row(name, last.group, False, tensors, last.timeout_ms, rows[0].frames or last.frames)

    def _wait(self) -> None:
        """The rank waits in the first call in flight that the device has started, else in the first one in flight.

        The others are only issued: they are behind it in the queue of its group, or in that of another group.
        """
        flying = [entry for entry in self.entries if entry.state == ISSUED]
        if not flying:
            return
        first = next((entry for entry in flying if entry.started), flying[0])
        row = self._rows[first.call]
        first.state = WAITING
        for entry in flying if row.message else ():  # the other parts of its batch
            own = self._rows[entry.call]
            if own.message and own.group == row.group and entry.pair == first.pair > 0:
                entry.state = WAITING

    def _number(self) -> None:
        """Versions 1.x count messages too, which not all ranks make: count collectives alone, if all are there."""
        mixed = {row.group for row in self._rows if row.message}
        counts: dict[int, int] = {}
        for entry in self.entries:
            row = self._rows[entry.call]
            if row.group in mixed:
                counts.setdefault(row.group, 0 if entry.seq <= 1 else -1)
            if counts.get(row.group, -1) >= 0 and not row.message and entry.state != DROPPED:
                counts[row.group] += 1
                entry.seq = counts[row.group]
