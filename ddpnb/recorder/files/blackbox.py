"""Writes the black box of this rank (the format is in model.blackbox)."""

from __future__ import annotations

import json
import os
import struct
import threading
from _thread import get_ident
from collections.abc import Callable
from itertools import count
from time import process_time_ns, thread_time_ns
from typing import Any

from ddpnb.recorder.files import shared_files
from ddpnb.recorder.files.clock import now_ns, of_launcher_ns
from ddpnb.recorder.files.locks import is_mine
from ddpnb.recording import blackbox as layout
from ddpnb.recording.calls import Site
from ddpnb.recording.events import Event, written
from ddpnb.recording.strings import GENERATIONS, STRING_LIMIT, string_number

# Every step of the training pays for a mark: what it needs is looked up once.
_MARK, _MARKED_AT, _STEP, _STEPS_AT = layout.MARK.pack_into, layout.MARKED_AT, layout.MARK_STEP, layout.STEPS_AT
_NUMBER = struct.Struct("<Q").pack_into
_MARKS, _MARKS_AT, _MARK_SIZE, _BACKWARD = layout.MARKS, layout.MARKS_AT, layout.MARK_SIZE, layout.MARK_BACKWARD


class BlackBox:
    """A memory-mapped file that survives ``kill -9`` and is readable by other processes.

    Records are written without a lock: numbers come from atomic counters, and a record belongs to
    the thread that began it. Only strings, events and runs, which are rarely written, take a lock.

    Raises:
        OSError: there is no room for the file.
    """

    def __init__(self, path: str, rank: int) -> None:
        self.path = path
        # A new file takes the name: readers of the box of this rank's former process keep that box.
        self.memory = shared_files.mapped(shared_files.take(path, layout.BOX_SIZE), layout.BOX_SIZE)
        self._lock = threading.RLock()
        #: not empty in a forked child, which must leave the box alone (a list: the door keeps it at hand)
        self.silent: list[bool] = []
        self._interned: dict[str, int] = {}
        self._generation = self._dropped = 0  # of the table of strings
        self._string_count = 0
        self._strings_used = 0
        #: called when the table has begun again: numbers of strings that were kept are void
        self.on_new_table: list[Callable[[], None]] = []
        self._event_count = 0
        self._run = 0
        self._run_state = layout.RUN_IDLE
        self._steps = self._forwards = self._passed = 0
        self._next_mark = count().__next__
        #: time of the main thread inside data loaders, in this run: counted by recorder.steps, written with the marks
        self.data_ns = 0
        self.held_ns = 0  # how long threads were held, for clocks of hooks
        self._first = (0, 0)  # call and event with which the run began
        self._own, self._own_ns, self._counting = threading.local(), 0, threading.Lock()
        self.next_call = count().__next__
        layout.IDENTITY.pack_into(
            self.memory, 0, layout.MAGIC, 1, rank, os.getpid(), (threading.main_thread().ident or 0) >> 6 & 0xFFFFFFFF
        )
        self.intern({})  # string 0: nothing

    @property
    def calls(self) -> int:
        """Collectives that this process has begun."""
        return layout.PROGRESS.unpack_from(self.memory, layout.PROGRESS_AT)[0]

    @property
    def steps(self) -> int:
        """Optimizer steps of this run."""
        return self._steps

    def intern(self, value: dict[str, Any]) -> int:
        """The number of this JSON text in the table; 0 when the table is full, or may not be written now."""
        text = json.dumps(value, sort_keys=True, default=str)
        if len(text) > STRING_LIMIT:
            text = json.dumps({"truncated": text[:1000]})
        number = self._interned.get(text)
        if number is not None:
            return number
        if self.silent or is_mine(self._lock):
            return 0
        data = text.encode("utf-8", "replace")
        with self._lock:
            if text in self._interned:
                return self._interned[text]
            if self._strings_used + 4 + len(data) > layout.STRINGS_SIZE:
                self._dropped += 1
                self._write_table()
                return 0
            at = layout.STRINGS_AT + self._strings_used
            self.memory[at + 4 : at + 4 + len(data)] = data
            struct.pack_into("<I", self.memory, at, len(data))
            number = string_number(self._generation, self._string_count)
            self._string_count += 1
            self._strings_used += 4 + len(data)
            self._write_status()
            self._interned[text] = number
        return number

    def _write_table(self) -> None:
        layout.TABLE.pack_into(self.memory, layout.TABLE_AT, self._generation, self._dropped)

    def _begin_table(self) -> None:
        """Forget all strings. A reader sees an empty table before it sees another generation."""
        self._strings_used = self._string_count = self._dropped = 0
        self._interned.clear()
        self._write_status()
        self._generation = (self._generation + 1) % GENERATIONS
        self._write_table()

    def _write_status(self) -> None:
        layout.STATUS.pack_into(
            self.memory,
            layout.STATUS_AT,
            self._strings_used,
            self._event_count,
            self._run,
            self._run_state,
            self._steps,
            *self._first,
        )

    def begin(self, event: Event) -> int:
        """Open an event; returns its number, to be given to ``end``; -1 when nothing may be written now."""
        if self.silent or is_mine(self._lock):
            return -1
        title, facts = self.intern({"phase": event.title}), self.intern(written(event))
        with self._lock:
            number = self._event_count
            at = layout.EVENTS_AT + (number % layout.EVENTS) * layout.EVENT_SIZE
            now = now_ns()
            layout.EVENT.pack_into(self.memory, at, number + 1, title, facts, 0, 0, now, 0)
            self._event_count += 1
            self._write_status()
            self._touch(now)
        return number

    def reopen(self, number: int, event: Event) -> int:
        """Open an event in the record of an earlier one, if that is still there: what happens very often must not fill the box."""
        if number < 0 or self.silent or is_mine(self._lock):
            return self.begin(event)
        title, facts = self.intern({"phase": event.title}), self.intern(written(event))
        at = layout.EVENTS_AT + (number % layout.EVENTS) * layout.EVENT_SIZE
        with self._lock:
            if layout.EVENT.unpack_from(self.memory, at)[0] == number + 1:
                now = now_ns()
                layout.EVENT.pack_into(self.memory, at, number + 1, title, facts, 0, 0, now, 0)
                self._touch(now)
                return number
        return self.begin(event)

    def end(self, number: int, learned: Event | None = None, failed: bool = False) -> None:
        """Close an event; ``learned``: one of its kind, with what is known only now."""
        if number < 0 or self.silent or is_mine(self._lock):
            return
        facts = self.intern(learned.facts()) if learned is not None else 0
        at = layout.EVENTS_AT + (number % layout.EVENTS) * layout.EVENT_SIZE
        with self._lock:
            fields = layout.EVENT.unpack_from(self.memory, at)
            if fields[0] != number + 1:
                return  # overwritten since
            now = now_ns()
            layout.EVENT.pack_into(self.memory, at, *fields[:3], 1 + failed, facts, fields[5], now)
            self._touch(now)

    def emit(self, event: Event) -> None:
        """Record an event that is over as soon as it begins."""
        number = self.begin(event)
        if number >= 0:
            self.end(number)

    def checkpoint(self, number: int, name: str, place: tuple[str, int, str], visit: int, now: int) -> None:
        """Record a checkpoint of the script.

        Args:
            number: of this rank in this run, from 1.
            name: what the script calls it.
            place: the file, line and function of the call.
            visit: how often this line was passed, from 1.
            now: the time, by the monotonic clock of this host.
        """
        if self.silent or is_mine(self._lock):
            return
        now = of_launcher_ns(now)
        site = self.intern(Site(*place).to_json())
        text = name.encode("utf-8", "replace")[: layout.CHECKPOINT_SIZE - layout.CHECKPOINT.size]
        at = layout.CHECKPOINTS_AT + layout.checkpoint_slot(number) * layout.CHECKPOINT_SIZE
        begin = at + layout.CHECKPOINT.size
        with self._lock:
            _NUMBER(self.memory, at, 0)  # a reader leaves out what is being written
            self.memory[begin : begin + len(text)] = text
            layout.CHECKPOINT.pack_into(self.memory, at, number, self._run, site, visit, now, len(text))
            self._passed = max(self._passed, number)  # a signal handler may have passed a later one meanwhile
            _NUMBER(self.memory, layout.PASSED_AT, self._passed)
            self._touch(now)

    def set_run(self, run: int, state: int) -> None:
        if self.silent:
            return
        with self._lock:
            if state == layout.RUN_ACTIVE:
                calls = layout.PROGRESS.unpack_from(self.memory, layout.PROGRESS_AT)[0]
                self._first, self._steps, self._forwards = (calls, self._event_count), 0, 0
                _NUMBER(self.memory, layout.FORWARDS_AT, 0)
                self._passed = 0
                _NUMBER(self.memory, layout.PASSED_AT, 0)
                marks = layout.MARKED.unpack_from(self.memory, layout.MARKED_AT)[0]
                layout.MARKED.pack_into(self.memory, layout.MARKED_AT, marks, marks)
                self.data_ns = 0
            self._run, self._run_state = run, state
            if state == layout.RUN_ACTIVE:
                self._begin_table()
            self._write_status()
            self._touch(now_ns())
        if state == layout.RUN_ACTIVE:
            self.intern({})  # string 0: nothing
            for forget in self.on_new_table:
                forget()
        self.mark(layout.MARK_BEGIN if state == layout.RUN_ACTIVE else layout.MARK_END)

    def silence(self) -> None:
        """From here on this process writes nothing."""
        self.silent.append(True)

    def step(self, threads: int = 0) -> None:
        """An optimizer has made a step; torch computes with so many threads."""
        if self.silent:
            return
        self._steps += 1
        _NUMBER(self.memory, _STEPS_AT, self._steps)
        self.mark(_STEP, threads)

    def forward(self) -> None:
        """A wrapped model is about to run forward."""
        if self.silent:
            return
        self._forwards += 1
        _NUMBER(self.memory, layout.FORWARDS_AT, self._forwards)

    def mark(self, kind: int, threads: int = 0) -> None:
        """Read the clocks. The process's own is the dearest, and needed once a step."""
        if self.silent:
            return
        number, memory = self._next_mark(), self.memory
        _MARK(
            memory, _MARKS_AT + number % _MARKS * _MARK_SIZE, number + 1, kind, get_ident() >> 6 & 0xFFFFFFFF, threads,
            self._steps & 0xFFFFFFFF, now_ns(), thread_time_ns(), 0 if kind == _BACKWARD else process_time_ns(),
            self.data_ns,
        )  # fmt: skip
        _NUMBER(memory, _MARKED_AT, number + 1)

    def alive(self, now: int) -> int:
        """Give a sign of life; returns the time of the last change."""
        if not self.silent:
            _NUMBER(self.memory, layout.ALIVE_AT, now)
        return layout.PROGRESS.unpack_from(self.memory, layout.PROGRESS_AT)[1]

    def count_own(self) -> None:
        """What the calling thread, one that answers requests, has used since it last called this is no work of the rank's."""
        now = thread_time_ns()
        with self._counting:
            self._own_ns += now - getattr(self._own, "counted", now)
            if not self.silent:
                _NUMBER(self.memory, layout.OWN_AT, self._own_ns)
        self._own.counted = now

    def _touch(self, now: int) -> None:
        calls = layout.PROGRESS.unpack_from(self.memory, layout.PROGRESS_AT)[0]
        layout.PROGRESS.pack_into(self.memory, layout.PROGRESS_AT, calls, now)
