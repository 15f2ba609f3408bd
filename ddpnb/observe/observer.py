"""The observer: watches the ranks of a run from outside, and takes Recordings.

Watching costs the ranks nothing: progress is read from the status vectors of their black boxes in
shared memory. The ranks are asked for stacks on the control channel only when one makes no progress.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ddpnb.model.account import Account
from ddpnb.model.blackbox import BoxReader, Status
from ddpnb.model.calls import CallState
from ddpnb.model.names import UNDECODABLE
from ddpnb.model.recording import Ending, Phase, Process, RankRecord, Recording
from ddpnb.model.shared import shared_file
from ddpnb.model.stacks import Frame, stacks_in
from ddpnb.observe import logs
from ddpnb.observe.rank_progress import Seen
from ddpnb.observe.replica_samples import Follower
from ddpnb.observe.time_ledger import Books
from ddpnb.processes import machine
from ddpnb.processes.process_samples import ProcessSample, sample
from ddpnb.processes.py_spy import TIMEOUT_S, py_spy_stacks
from ddpnb.processes.rank_processes import RankProcesses

_BEGIN_S = 30.0  # that a rank may take to begin a run on a busy machine
ANSWER_S = 1.0  # how long a rank may take to answer on the control channel
_LEAST_S = 0.05  # less is too short for stacks from outside
_SOURCE_LIMIT = 1 << 20
_ENDING_LIMIT = 16 << 20
_HISTORY = 1024  # calls and time marks of a rank that a Recording taken live goes back


class Observer:
    """Looks at the ranks of one run.

    Args:
        engines: the processes.
        folder: where the boxes lie.
        outcomes: for each rank the file that says how the script ended there.
        run: number of the run.
        logs: for each rank the file that takes its output, with the last words of a crash.
    """

    def __init__(
        self,
        engines: RankProcesses,
        folder: str,
        outcomes: Mapping[int, str],
        run: int,
        logs: Mapping[int, str] | None = None,
    ) -> None:
        self._engines = engines
        self._folder = folder
        self._outcomes = outcomes
        self._logs = logs or {}
        self._run = run
        self._seen = {rank: Seen() for rank in outcomes}
        self._sources: dict[str, str] = {}
        self._killed_before = machine.oom_kills()
        self._follower = Follower(folder, outcomes, run, partial(_string, self._seen))
        self._books = Books(run)
        self._began = time.monotonic()
        self._lock = threading.RLock()  # the watchdog and the user may look at the same time

    # -- cheap looks

    def follow(self) -> None:
        """Read what the replicas' digests and the calls say since the last look."""
        with self._lock:
            self._follower.take()
            self._keep_books()

    def _keep_books(self, *, now: bool = False) -> None:
        readers = {rank: seen.reader for rank, seen in self._seen.items() if seen.reader is not None}
        ended = {rank: seen.ending.at_ns for rank, seen in self._seen.items() if seen.ending is not None}
        self._books.look(readers, ended, now=now)

    def account(self, now_ns: int) -> Account:
        """The time account up to this moment."""
        with self._lock:
            self._keep_books(now=True)
            return self._books.account(now_ns)

    def with_account(self, recording: Recording) -> Recording:
        """A recording of this observer with the time account up to its moment."""
        return replace(recording, account=self.account(recording.taken_ns))

    def reader(self, rank: int) -> BoxReader | None:
        """The rank's box; None before there is one."""
        self.status(rank)
        return self._seen[rank].reader

    def status(self, rank: int) -> Status:
        seen = self._seen[rank]
        if seen.reader is None:
            try:
                seen.reader = BoxReader(shared_file(os.path.join(self._folder, f"rank{rank}.box")))
            except (OSError, ValueError):
                return Status()
        return seen.reader.status

    def statuses(self) -> dict[int, Status]:
        return {rank: self.status(rank) for rank in self._seen}

    def waits(self, rank: int) -> bool:
        """Whether, by its box, a thread of the rank waits in a call."""
        reader = self._seen[rank].reader
        return reader is not None and any(
            call.state in (CallState.WAITING, CallState.ENTERED) for call in reader.calls(4)
        )

    def ending(self, rank: int) -> Ending | None:
        """How the script ended on this rank; None while it runs."""
        seen = self._seen[rank]
        if seen.ending is None:
            seen.ending = self._read_outcome(rank)
        if seen.ending is None:
            code = self._engines.exit_status(rank)
            if code is not None:
                frames = logs.last_words(self._logs.get(rank, "")) if code else ()
                seen.ending = self._read_outcome(rank) or Ending("died", code, frames=frames, at_ns=time.monotonic_ns())
        return seen.ending

    def _read_outcome(self, rank: int) -> Ending | None:
        try:
            with open(self._outcomes[rank], encoding="utf-8") as file:
                value = json.loads(file.read(_ENDING_LIMIT))
            return Ending(
                value["how"],
                int(value["code"]),
                str(value.get("exception", "")),
                str(value.get("message", "")),
                tuple(Frame.from_json(frame) for frame in value.get("frames", ())),
                str(value.get("traceback", "")),
                int(value["at_ns"]),
            )
        except (OSError, *UNDECODABLE):
            return None

    def look(self) -> dict[int, str]:
        """What the running ranks are doing, as the host sees it."""
        running = [rank for rank in self._seen if self.ending(rank) is None]
        samples = sample(self._engines.pid(rank) for rank in running)
        with self._lock:
            self._sampled(running, samples)
        return {rank: self._seen[rank].watch.activity for rank in running}

    def _sampled(self, running: Sequence[int], samples: Mapping[int, ProcessSample]) -> None:
        for rank in running:
            seen = self._seen[rank]
            seen.watch.add(samples[self._engines.pid(rank)])
            # A collective, or a line of output, may cost less than counts as busy.
            progress = self.status(rank).progress_ns, logs.written(self._logs.get(rank, ""))
            if progress != seen.progress:
                seen.progress, seen.watch.idle_since = progress, time.monotonic()

    # -- the whole picture

    def record(
        self,
        ask: bool = True,
        with_locals: bool = True,
        *,
        values: bool = False,
        history: int = _HISTORY,
        follow: bool = True,
        outside_s: float = math.inf,
    ) -> Recording:
        """A Recording of this moment. Stacks of ranks that do not answer are read from outside.

        Args:
            ask: ask the ranks for their stacks.
            with_locals: and for the variables in them.
            values: also for what tells two tensors of one shape apart.
            history: how many calls and time marks of each rank it goes back.
            follow: read the digests of the replicas and the time account too.
            outside_s: total time limit for reading stacks from outside; ranks left after it have no stacks.
        """
        end = time.monotonic() + outside_s
        running = [rank for rank in self._seen if self.ending(rank) is None]
        answers: dict[int, dict[str, Any]] = {}
        if ask and running:
            content = {"verb": "snapshot", "locals": with_locals, "values": values}
            asked = [rank for rank in running if not self._seen[rank].silent] or running
            answers = self._engines.ask(asked, content, ANSWER_S)
            reached = self._engines.connection == "open"  # else silence says nothing of the ranks
            for rank in asked:
                self._seen[rank].silent = rank not in answers and reached
            for rank in running:
                if rank in answers:
                    self._seen[rank].stacks = stacks_in(answers[rank].get("stacks"))
                elif self._engines.exit_status(rank) is None:
                    left = end - time.monotonic()
                    self._seen[rank].stacks = (
                        py_spy_stacks(self._engines.pid(rank), min(TIMEOUT_S, left)) if left > _LEAST_S else ()
                    )
        with self._lock:
            if follow:
                self.follow()
            return self._recording(answers, history, with_stacks=ask, end=end)

    def _recording(
        self, answers: Mapping[int, dict[str, Any]], history: int, *, with_stacks: bool, end: float
    ) -> Recording:
        records = {
            rank: self._record_of(rank, answers.get(rank), history, with_stacks=with_stacks, end=end)
            for rank in self._seen
        }
        host = {**machine.facts(), **{f"{name}_before": count for name, count in self._killed_before.items()}}
        return Recording(len(self._seen), records, self._sources_of(records), time.monotonic_ns(), host)

    def _record_of(
        self, rank: int, answer: dict[str, Any] | None, history: int, *, with_stacks: bool, end: float
    ) -> RankRecord:
        seen = self._seen[rank]
        status = self.status(rank)
        ending = self.ending(rank)
        device = self._engines.device(rank)
        current = seen.reader is not None and status.run == self._run
        calls = seen.reader.calls(history) if seen.reader is not None and current else ()
        process = seen.process(answer, device) if ending is None else Process("gone")
        if not current and process.activity == "idle" and time.monotonic() - self._began < _BEGIN_S:
            process = replace(process, activity="unknown")  # the request has not arrived yet
        phases = (seen.reader.phases() if seen.reader is not None and current else ()) + self._of_children(rank)
        return RankRecord(
            rank=rank,
            pid=self._engines.pid(rank),
            calls=calls,
            phases=phases,
            stacks=seen.stacks if ending is None and with_stacks else (),
            process=process,
            ending=ending,
            steps=status.steps,
            forwards=status.forwards,
            device=device,
            forgotten=calls[0].number - status.first_call if calls else 0,
            models=self._follower.models(rank),
            samples=self._follower.samples(rank),
            children=seen.waited_for(self._engines.pid(rank), end) if ending is None else (),
            output=logs.end(self._logs.get(rank, "")) if ending is not None or with_stacks else "",
            phases_forgotten=self.status(rank).phases_forgotten if current else 0,  # after they were read
            unnamed=seen.reader.dropped if seen.reader is not None and current else 0,
            marks=seen.reader.marks(last=history) if seen.reader is not None and current else (),
        )

    def _of_children(self, rank: int) -> tuple[Phase, ...]:
        """Events of a forked child that used the process group of its parent."""
        try:
            with open(os.path.join(self._folder, f"rank{rank}.box.child{self._run}")) as file:
                told = json.loads(file.read(4096))
        except (OSError, ValueError, RecursionError):
            return ()
        return (Phase("used after fork", "done", facts=told),) if isinstance(told, dict) else ()

    def _sources_of(self, records: Mapping[int, RankRecord]) -> dict[str, str]:
        """The text of the user's files that the current stacks and last calls lie in."""
        wanted: set[str] = set()
        for record in records.values():
            wanted.update(frame.file for stack in record.stacks if stack.main for frame in stack.user_frames)
            wanted.update(call.site.file for call in record.calls[-4:])
            wanted.update(sample.site.file for sample in record.samples[-16:])
            wanted.update(str(phase.facts["file"]) for phase in record.phases if "file" in phase.facts)
            if record.ending is not None:
                wanted.update(frame.file for frame in record.ending.frames if frame.user)
        for path in wanted - set(self._sources):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    self._sources[path] = file.read(_SOURCE_LIMIT)
            except OSError:
                self._sources[path] = ""
        return dict(self._sources)


def _string(seen: Mapping[int, Seen], rank: int, number: int) -> Any:
    """The JSON behind a number in a rank's box. No method: an observer that is dropped is then freed at once."""
    reader = seen[rank].reader
    return reader.string(number) if reader is not None else None
