"""What an observer keeps of one rank between two looks."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ddpnb.ranks.observe import logs
from ddpnb.ranks.process_samples import ActivityTracker, ProcessSample
from ddpnb.recording import status_file
from ddpnb.recording.blackbox import BoxReader, Status
from ddpnb.recording.calls import CallState
from ddpnb.recording.ending import UNKNOWN_SIGNAL, UNKNOWN_STATUS, Ending
from ddpnb.recording.names import UNDECODABLE
from ddpnb.recording.path import Path
from ddpnb.recording.path_file import PathReader
from ddpnb.recording.recording import Child, Process
from ddpnb.recording.shared import shared_file
from ddpnb.recording.stacks import Frame, Stack
from ddpnb.recording.verbs import Looked

_ENDING_LIMIT = 16 << 20
# A rank that is idle in these files may wait for its own child process: then the children are examined too.
_CHILDREN = ("/torch/utils/data/", "/multiprocessing/", "/concurrent/futures/")
_CHILDREN_AGAIN_S = 2.0
_HOLDERS = 64  # of a file lock
_ASKED_NS = 1_000_000_000  # since a question whether a call is complete, for a program that asks all the time
_LAST_CALLS = 4  # among which is the one that a rank waits in
_EXIT_S = 30.0  # that a process may take to end after its script


class RankProgress:
    """Reads the black box, the process and the files of one rank.

    Args:
        folder: where the black boxes are.
        rank: the rank.
        outcome: the file that says how the script ended.
        log: the file with its output.
    """

    def __init__(self, folder: str, rank: int, outcome: str, log: str) -> None:
        self.log = log
        self.stacks: tuple[Stack, ...] = ()
        self.unseen: tuple[str, ...] = ()  # what communicates there without passing the door, as it answered last
        self.silent = False  # it did not answer when it was asked last
        # Of a rank that is not recorded: how often its main thread gave up its core, and when that was read.
        self.switches: object = None
        self.looked_at: float | None = None
        self.tracker = ActivityTracker()
        self._folder, self._rank = folder, rank
        self._box = os.path.join(folder, f"rank{rank}.box")
        self._outcome = outcome
        self._crash = os.path.join(folder, f"rank{rank}.crash")
        self._reader: BoxReader | None = None
        self._inode = -1  # of the black box that was read last
        self._paths: PathReader | None = None
        self._written: Ending | None = None  # by the process
        self._ending: Ending | None = None  # with its exit status
        self._progress = (0, 0)  # time of the last change in its box, bytes in its log
        self._received: Any = -1  # bytes, through the connection that the main thread reads
        self._wakes_at: float | None = None  # until when it sleeps, and since when that is known
        self._wakes_known = 0.0
        self._place: object = None  # of the main thread with its variables, and since when it is there
        self._place_since = time.monotonic()
        self._sleeps = 0  # one after another at that place
        self._children: tuple[Child, ...] = ()
        self._children_at = 0.0

    @property
    def reader(self) -> BoxReader | None:
        """The reader of its black box; None before there is one. A process that replaces its program (exec) begins another."""
        with contextlib.suppress(OSError, ValueError):
            inode = os.stat(self._box).st_ino
            if inode != self._inode:
                self._inode, found = inode, BoxReader(shared_file(self._box))
                if self._reader is None or found.status.pid == self._reader.status.pid:
                    self._reader, self._paths = found, None
        return self._reader

    def path(self, run: int) -> Path | None:
        """Its path in this run; None: it is not recorded."""
        if self._paths is None:
            try:
                self._paths = PathReader(shared_file(os.path.join(self._folder, f"rank{self._rank}.path")))
            except (OSError, ValueError):
                return None
        return self._paths.read(run)

    @property
    def status(self) -> Status:
        """The status vector of its black box."""
        reader = self.reader
        return reader.status if reader is not None else Status()

    @property
    def waits(self) -> bool:
        """Whether, according to its black box, a thread waits in a call, or asks again and again whether one is complete."""
        asked = max((call.asked_ns for call in self._reader.calls(_LAST_CALLS)), default=0) if self._reader else 0
        return self._in_state(CallState.WAITING, CallState.ENTERED) or time.monotonic_ns() - asked < _ASKED_NS

    @property
    def stands(self) -> bool:
        """Whether, according to its black box, a thread waits in a call or is held before one."""
        return self._in_state(CallState.WAITING, CallState.ENTERED, CallState.HELD)

    def _in_state(self, *states: CallState) -> bool:
        reader = self._reader
        return reader is not None and any(call.state in states for call in reader.calls(_LAST_CALLS))

    def ending(self, exit_status: int | None, *, with_process: bool = False) -> Ending | None:
        """How the script ended; None while it runs.

        Args:
            exit_status: of the process, if it has ended.
            with_process: the process ends with its script, and its exit status is that of the script. While it lives,
                the ending may still change: see ``is_over``.
        """
        if self._ending is not None:
            return self._ending
        self._written = self._written or self._read_ending()
        written = self._written
        if exit_status is None and with_process and written is not None:
            return written
        if written is not None:
            self._ending = self._with_status(written, exit_status) if with_process else written
        elif exit_status == UNKNOWN_STATUS:
            self._ending = Ending("ended", at_ns=time.monotonic_ns())
        elif exit_status is not None:
            frames = (logs.last_words(self._crash) or logs.last_words(self.log)) if exit_status else ()
            self._ending = Ending("died", exit_status, frames=frames, at_ns=time.monotonic_ns())
        return self._ending

    @property
    def is_over(self) -> bool:
        """Whether the ending is known for good, or that the script has failed."""
        return self._ending is not None or (self._written is not None and self._written.how == "raised")

    @property
    def is_exiting(self) -> bool:
        """Whether its process is about to end, with a status that its parent may act on: what follows is not known yet."""
        if self.is_over or self._written is None:
            return False
        return (time.monotonic_ns() - self._written.at_ns) * 1e-9 < _EXIT_S

    def _with_status(self, ending: Ending, exit_status: int | None) -> Ending:
        """The ending with the exit status of its process."""
        if exit_status in (None, UNKNOWN_SIGNAL, UNKNOWN_STATUS):
            return ending
        if ending.how == "raised":  # an interrupted process ends itself by the signal
            return replace(ending, code=exit_status) if exit_status >= 0 else ending
        if exit_status < 0:
            return replace(ending, how="died", code=exit_status)
        if exit_status != ending.code:  # what called sys.exit() has caught it; or nobody did
            how = "exited" if exit_status else "finished"
            ending = replace(ending, how=how, code=exit_status, message="", frames=(), asked=None)
        left = status_file.read(self._folder, self._rank)
        if not ending.frames and left.status == exit_status != left.given:  # else sys.exit() has said what it was given
            ending = replace(ending, how="exited", asked=left.given)
        return ending

    def _read_ending(self) -> Ending | None:
        """As the process has written it: all of it in a file, or as much as its page holds."""
        found: Ending | None = None
        with contextlib.suppress(*UNDECODABLE):  # the page first: it is written last
            found = _ending(status_file.read(self._folder, self._rank).ending)
        with contextlib.suppress(OSError, *UNDECODABLE), open(self._outcome, encoding="utf-8") as file:
            found = _ending(json.loads(file.read(_ENDING_LIMIT)))
        return found

    def add(self, process: ProcessSample) -> None:
        """Add a sample of its process. A collective or a line of output may cost less than counts as computing."""
        own_s = self.reader.own_ns * 1e-9 if self.reader is not None else 0.0
        self.tracker.add(replace(process, own_s=own_s))
        progress = self.status.progress_ns, logs.written(self.log)
        if progress != self._progress:
            self._progress, self.tracker.idle_since = progress, time.monotonic()

    def process(self, answer: Looked | None, gpu: Mapping[str, Any], held_up_by: tuple[int, ...] = ()) -> Process:
        """The state of its process.

        Args:
            answer: to the last request, if there was one and it came.
            gpu: memory and use of its GPU (``gpus.usage``).
            held_up_by: see ``holders``.
        """
        now = time.monotonic()
        received = answer.received if answer else -1
        if received != self._received:
            if received > self._received >= 0:  # a slow download
                self.tracker.idle_since = now
            self._received = received
        wakes_at = answer.wakes_at if answer else self._wakes_at
        where = self.stacks[0].frames and self.stacks[0].innermost if self.stacks else None
        place = (where, self.status.calls, self.switches) if self.stacks else None
        if place != self._place:
            self._place, self._place_since, self._sleeps = place, now, 0
        still_until = now if self.looked_at is None else self.looked_at
        if wakes_at is None or (not answer and wakes_at < now):
            wakes_at = None  # of a rank that did not answer it is known until then that it sleeps
        elif wakes_at != self._wakes_at:
            # Not the same sleep as last time: a loop of sleeps always wakes soon and never ends.
            self._wakes_known = now
            self._sleeps += 1
        self._wakes_at = wakes_at
        long_sleep = wakes_at is not None and now - self._wakes_known > 1.0 and self._sleeps <= 1
        return Process(
            self.tracker.activity,
            self.tracker.idle_s,
            max(0.0, wakes_at - now) if long_sleep and wakes_at is not None else None,
            answer.waits_on[:200] if answer else "",
            answered=not self.silent,
            holds_lock=self.silent and any(stack.holds_lock for stack in self.stacks),
            still_s=max(0.0, still_until - self._place_since),
            memory=self.tracker.memory,
            cores=self.tracker.cores,
            held_up_by=held_up_by,
            **gpu,
        )

    def used(self, gpu: Mapping[str, Any]) -> dict[str, float | None]:
        """What its process and its GPU use now."""
        return {
            "memory": self.tracker.memory,
            "cores": self.tracker.cores,
            "device_memory": gpu.get("device_memory"),
            "device_busy": gpu.get("device_busy"),
        }

    def children(self, examined: Callable[[float, float], tuple[Child, ...]], end: float) -> tuple[Child, ...]:
        """The processes that the rank waits for, if it does; ``examined`` every few seconds until ``end``."""
        main = next((stack for stack in self.stacks if stack.main), None)
        files = [frame.file for frame in main.frames[-12:] if not frame.user] if main is not None else []
        if self.tracker.activity != "idle" or not any(part in file for file in files for part in _CHILDREN):
            self._children = ()
        elif not self._children or time.monotonic() - self._children_at > _CHILDREN_AGAIN_S:
            self._children = examined(self.tracker.idle_s, end)
            self._children_at = time.monotonic()
        return self._children


def holders(rank: int, answers: Mapping[int, Looked]) -> tuple[int, ...]:
    """The ranks that hold the file lock that this one waits for; -1: none of those that answered."""
    ranks = {(answer.machine, answer.pid): other for other, answer in answers.items()}
    answer = answers.get(rank, Looked())
    return tuple(ranks.get((answer.machine, pid), -1) for pid in answer.holders[:_HOLDERS])


def _ending(value: Any) -> Ending:
    """The ending that a rank has written. Raises one of ``UNDECODABLE`` where it is none."""
    asked = value.get("asked")
    return Ending(
        value["how"],
        int(value["code"]),
        str(value.get("exception", "")),
        str(value.get("message", "")),
        tuple(Frame.from_json(frame) for frame in value.get("frames", ())),
        str(value.get("traceback", "")),
        int(value["at_ns"]),
        int(asked) if asked is not None else None,
    )
