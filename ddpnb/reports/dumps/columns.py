"""A flight-recorder dump as columns: a table of its different calls, and arrays with what differs from entry to entry.

This runs in the processes of ``processes``, so it needs the standard library alone. Fields may hold anything: what is
absent or of another type is unknown.
"""

from __future__ import annotations

import json
from array import array
from typing import Any

from ddpnb.reports.dumps.call_table import CallTable
from ddpnb.reports.dumps.fields import LARGEST, MOST_TENSORS, config, rank, status, text, whole
from ddpnb.reports.pickles import Refused

MOST_ENTRIES = 200_000  # the last ones

DROPPED, ISSUED, WAITING, COMPLETED = 0, 2, 3, 4  # the states of an entry: those of model.calls.CallState
_STATES = {"scheduled": 1, "issued": 1, "started": 2, "completed": 3}
_KEYS = ("entries", "pg_config", "pg_status", "nccl_comm_state")
SILENT = ("gloo", "mpi", "ucc")  # backends that note no completion: they retire an entry when it ends, however it ends


def columns(dump: Any) -> tuple[bytes, bytes, list[array[int]]]:
    """Reduce a dump.

    Args:
        dump: what ``pickles.loads`` gave.

    Returns:
        Its calls as JSON (the same for ranks that do the same), the facts of the rank as JSON, and the columns:
        the call (a place in the table), its numbers in the group and in the recorder, when it was created and completed,
        the thread and the state.

    Raises:
        Refused: it is no dump of a flight recorder.
    """
    dump = {"entries": dump} if isinstance(dump, list) else dump  # torch 2.2 dumps the entries alone
    if not isinstance(dump, dict) or not any(key in dump for key in _KEYS):
        raise Refused("is not a dump of the flight recorder: it has neither entries nor groups")
    listed = dump.get("entries")
    entries = [entry for entry in (listed if isinstance(listed, list) else ())[-MOST_ENTRIES:] if type(entry) is dict]
    if isinstance(dump.get("entries"), list) and listed and not any("profiling_name" in entry for entry in entries):
        raise Refused("is not a dump of the flight recorder: its entries name no operations")
    table = CallTable(entries)
    own = _Columns(entries, table, status(dump))
    facts = {
        "version": text(dump.get("version"))[:32],
        "rank": rank(dump),
        "records": own.records,
        "threads": own.threads,
        "pg_config": config(dump.get("pg_config")),
        "pg_status": [[text(key), *found] for key, found in status(dump).items()],
        "left_out": len(listed) - len(entries) if isinstance(listed, list) else 0,
    }
    return json.dumps(table.content()).encode(), json.dumps(facts).encode(), own.arrays()


class _Columns:
    """What differs between entries of one call, and the state of each."""

    def __init__(self, entries: list[dict[Any, Any]], table: CallTable, status: dict[Any, list[int]]) -> None:
        self._table = table
        self._created = _column(entries, "time_created_ns")
        if not any(self._created):  # torch 2.2
            micros = _column(entries, "time_created_us")
            self._created = array("q", [min(max(us, 0), LARGEST // 1000) * 1000 for us in micros])
        self._done = _column(entries, "time_discovered_completed_ns")
        number = "collective_seq_id" if any("collective_seq_id" in entry for entry in entries[:1]) else "seq_id"
        self._seq = _column(entries, number)
        self._pair = _column(entries, "p2p_seq_id")
        self.records = bool(entries) and "record_id" in entries[0]
        self._record = _column(entries, "record_id") if self.records else array("q", range(len(entries)))
        names: dict[str, int] = {}
        ids = [entry.get("thread_id") for entry in entries]
        ids = [own if type(own) is str else text(own) for own in ids]
        self._thread = array("B", [min(names.setdefault(own, len(names)), 255) for own in ids])
        self.threads = [text(own)[:64] for own in list(names)[:256]]
        self._calls = array("I", table.calls)
        self._state = self._states(entries, status)
        self._join()
        self._wait()
        if number == "seq_id":
            self._number()

    def arrays(self) -> list[array[int]]:
        return [self._calls, self._seq, self._record, self._created, self._done, self._thread, self._state]

    def _states(self, entries: list[dict[Any, Any]], status: dict[Any, list[int]]) -> array[int]:
        noted = [entry.get("state") for entry in entries]
        states = [_STATES.get(state, 0) if type(state) is str else 0 for state in noted]
        self._started = [state == 2 for state in states]
        ended = 3 in states or any(self._done)
        rows = self._table.rows
        # After an abort NCCL's kernels end too: what took longer than its time-out was waited in.
        longest = [row[7] * 1_000_000 if row[7] > 0 else LARGEST for row in rows]
        ends = [row[0].startswith(SILENT) or not (ended or row[0].startswith("nccl")) for row in rows]
        found = bytearray(len(entries))
        for place, (state, call, done) in enumerate(zip(states, self._calls, self._done, strict=True)):
            if state == 3 or done > 0:
                created = self._created[place]
                completed = not 0 < created < done - longest[call]
            elif entries[place].get("retired") is True:
                completed = ends[call]
            elif state or "retired" in entries[place]:
                completed = False
            else:  # an entry that says nothing of its state
                name, _, number = self._table.groups[rows[call][1]]
                completed = self._seq[place] <= (status.get(number) or status.get(name) or (-1, -1, -1))[2]
            found[place] = COMPLETED if completed else ISSUED
        return array("B", bytes(found))

    def _join(self) -> None:
        """Join the parts of batches (``batch_isend_irecv``, coalesced collectives) with the entry that closes each.

        Parts keep the state "scheduled" forever; that of the closing entry is theirs. Sends and receives stay, a
        collective becomes one call.
        """
        rows, calls = self._table.rows, self._calls
        closing = {place for place, row in enumerate(rows) if row[0].lower().endswith("coalesced")}
        for end in [place for place, call in enumerate(calls) if call in closing] if closing else ():
            _, group, messages = rows[calls[end]][:3]
            parts: list[int] = []
            for place in range(end - 1, max(-1, end - 4 * MOST_TENSORS), -1):
                row = rows[calls[place]]
                if row[1] != group:
                    continue
                same = self._pair if row[2] else self._seq
                if calls[place] in closing or same[place] != same[end] or row[2] < messages:
                    break
                if parts and row[2] != rows[calls[parts[-1]]][2]:
                    break
                parts.append(place)
            self._close(parts[::-1], end)

    def _close(self, parts: list[int], end: int) -> None:
        if not parts:
            return
        if self._table.rows[self._calls[parts[0]]][2]:
            for part in parts:
                self._state[part], self._done[part] = self._state[end], self._done[end]
                self._started[part] = self._started[end]
            self._state[end] = DROPPED
            return
        self._calls[end] = self._table.join([self._calls[part] for part in parts], self._calls[end])
        for part in parts:
            self._state[part] = DROPPED

    def _wait(self) -> None:
        """The rank waits in the first call in flight that the device has started, else in the first one in flight.

        The others are only issued: they are behind it in the queue of its group, or in that of another group.
        """
        rows, pair = self._table.rows, self._pair
        flying = [place for place, state in enumerate(self._state) if state == ISSUED]
        if not flying:
            return
        first = next((place for place in flying if self._started[place]), flying[0])
        group, message = rows[self._calls[first]][1:3]
        self._state[first] = WAITING
        for place in flying if message else ():  # the other parts of its batch
            row = rows[self._calls[place]]
            if row[2] and row[1] == group and pair[place] == pair[first] > 0:
                self._state[place] = WAITING

    def _number(self) -> None:
        """Versions 1.x count messages too, which not all ranks make: count collectives alone, if all are there."""
        rows, seq = self._table.rows, self._seq
        mixed = {row[1] for row in rows if row[2]}
        counts: dict[int, int] = {}
        for place, call in enumerate(self._calls):
            group, message = rows[call][1:3]
            if group in mixed:
                counts.setdefault(group, 0 if seq[place] <= 1 else -1)
            if counts.get(group, -1) >= 0 and not message and self._state[place] != DROPPED:
                counts[group] += 1
                seq[place] = counts[group]


def _column(entries: list[dict[Any, Any]], key: str) -> array[int]:
    try:
        return array("q", [entry.get(key) or 0 for entry in entries])
    except (TypeError, OverflowError):
        return array("q", [whole(entry.get(key)) for entry in entries])
