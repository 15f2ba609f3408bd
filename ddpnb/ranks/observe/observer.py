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
from collections.abc import Container, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ddpnb.ranks import machine
from ddpnb.ranks.observe import logs
from ddpnb.ranks.observe.curves import CurveHistory
from ddpnb.ranks.observe.rank_progress import RankProgress, holders
from ddpnb.ranks.observe.replica_samples import ReplicaSamples
from ddpnb.ranks.observe.source_files import SourceFiles
from ddpnb.ranks.observe.time_ledger import TimeLedger
from ddpnb.ranks.py_spy import TIMEOUT_S
from ddpnb.ranks.rank_processes import RankView
from ddpnb.recording.account import Account
from ddpnb.recording.blackbox import BoxReader, Status
from ddpnb.recording.curves import Curves
from ddpnb.recording.ending import Ending
from ddpnb.recording.events import Event, read
from ddpnb.recording.events.startup import UsedAfterFork
from ddpnb.recording.recording import Activity, Process, RankRecord, Recording
from ddpnb.recording.stacks import stacks_in, unseen_in
from ddpnb.recording.verbs import Looked, Snapshot

_BEGIN_S = 30.0  # that a rank may take to begin a run on a busy machine
ANSWER_S = 1.0  # how long a rank may take to answer on the control channel
_LEAST_S = 0.05  # less is too short for stacks from outside
_HOST_S = 1.0  # between two reads of the facts of the machine, for a look
_HISTORY = 1024  # calls and time marks of a rank that a Recording taken live goes back


class Observer:
    """Looks at the ranks of one run.

    Args:
        processes: of the ranks.
        folder: where the black boxes are.
        outcomes: for each rank the file that says how the script ended there.
        run: number of the run.
        logs: for each rank the file with its output.
        began_ns: when the run began, on the monotonic clock; 0: now.
    """

    def __init__(
        self,
        processes: RankView,
        folder: str,
        outcomes: Mapping[int, str],
        run: int,
        logs: Mapping[int, str] | None = None,
        began_ns: int = 0,
    ) -> None:
        self.what = ""  # that runs, in words
        self._processes = processes
        self._folder = folder
        self._run = run
        self._ranks = {
            rank: RankProgress(folder, rank, outcome, (logs or {}).get(rank, "")) for rank, outcome in outcomes.items()
        }
        self._outside = processes.outside()
        self._sources = SourceFiles(self._outside.source)
        pids = filter(None, map(processes.pid, outcomes)) if self._outside.here else ()
        self._memory_groups = machine.memory_groups(pids)
        self._killed_before = machine.oom_kills(self._memory_groups)
        self._host: dict[str, Any] = {}
        self._host_at = -math.inf
        self._curves = CurveHistory(began_ns or time.monotonic_ns())
        self._replicas = ReplicaSamples(folder, outcomes, run, partial(_string, self._ranks), self._curves.loss)
        self._ledger = TimeLedger(run, self._outside.queued)
        self._began = time.monotonic()
        self._never: frozenset[int] = frozenset()  # ranks that have no process, and will not have one
        self._lock = threading.RLock()  # the watchdog and the user may look at the same time

    # -- cheap looks

    def follow(self) -> None:
        """Read the digests of the replicas and the calls since the last look."""
        with self._lock:
            self._replicas.read()
            self._update_ledger()
            if not self._curves.begun:
                self._find_first_call()

    def _update_ledger(self, *, now: bool = False) -> None:
        readers = {rank: known.reader for rank, known in self._ranks.items() if known.reader is not None}
        ended = {rank: ending.at_ns for rank in self._ranks if (ending := self.ending(rank)) is not None}
        self._ledger.update(readers, ended, now=now)

    def _find_first_call(self) -> None:
        """When the first collective of the run began: it may have been before anybody looked."""
        found: list[int] = []
        for known in self._ranks.values():
            calls = known.reader.calls(_HISTORY) if known.reader is not None and known.status.run == self._run else ()
            if calls and calls[0].entered_ns:
                found.append(calls[0].entered_ns)
        if found:
            self._curves.first_call(min(found))

    def curves(self) -> Curves:
        """Loss, memory and use of the ranks over time, up to now."""
        self.follow()
        return self._curves.curves()

    def account(self, now_ns: int) -> Account:
        """The time account up to this moment."""
        with self._lock:
            self._update_ledger(now=True)
            return self._ledger.account(now_ns)

    def with_account(self, recording: Recording) -> Recording:
        """A recording of this observer with the time account up to its moment."""
        return replace(recording, account=self.account(recording.taken_ns))

    def reader(self, rank: int) -> BoxReader | None:
        """The reader of the rank's black box; None before there is one."""
        return self._ranks[rank].reader

    def status(self, rank: int) -> Status:
        """The status vector of the rank's black box."""
        return self._ranks[rank].status

    def statuses(self) -> dict[int, Status]:
        """The status vectors of all ranks."""
        return {rank: known.status for rank, known in self._ranks.items()}

    def stands(self, rank: int) -> bool:
        """Whether, according to its black box, the rank waits in a call or is held before one."""
        return self._ranks[rank].stands

    def waits(self, rank: int) -> bool:
        """Whether, according to its black box, a thread of the rank waits in a call."""
        return self._ranks[rank].waits

    def ending(self, rank: int) -> Ending | None:
        """How the script ended on this rank, as far as that is known; None while it runs."""
        status = self._processes.exit_status(rank)
        return self._ranks[rank].ending(status, with_process=self._processes.ends_with_script)

    def expect_no_more(self) -> None:
        """From now on ranks that were never seen are not waited for: nothing is left that could become one."""
        self._never = frozenset(rank for rank in self._ranks if not self._processes.pid(rank))

    def exiting(self) -> set[int]:
        """The ranks whose script has ended and whose process is about to: how is not known yet."""
        return {rank for rank, known in self._ranks.items() if self.ending(rank) is not None and known.is_exiting}

    def _running(self) -> list[int]:
        """The ranks of which it is not known for good how they end."""
        return [
            rank
            for rank, known in self._ranks.items()
            if rank not in self._never and (self.ending(rank) is None or not known.is_over)
        ]

    def look(self) -> dict[int, Activity]:
        """What the processes of the running ranks do."""
        running = self._running()
        with self._lock:
            samples = self._outside.samples(running)
            for rank, sample in samples.items():
                self._ranks[rank].add(sample)
            if self._curves.due and any(self._ranks[rank].status.run == self._run for rank in running):
                used = {rank: self._ranks[rank].used(self._outside.usage(rank)) for rank in running}
                self._curves.look(time.monotonic_ns(), used)
        return {rank: self._ranks[rank].tracker.activity if rank in samples else "unknown" for rank in running}

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
            follow: read the digests of the replicas, the time account and the executed lines too; without them the
                facts of the machine may be a second old.
            outside_s: total time limit for reading stacks from outside; ranks left after it have no stacks.
        """
        end = time.monotonic() + outside_s
        running = [rank for rank in self._running() if self.ending(rank) is None]
        answers: dict[int, Looked] = {}
        if ask and running:
            request = Snapshot(locals=with_locals, values=values)
            listening = [rank for rank in running if self._processes.listens(rank)]
            asked = [rank for rank in listening if not self._ranks[rank].silent] or listening
            answers = self._processes.ask(asked, request, ANSWER_S)
            reached = self._processes.connection == "open"  # else silence says nothing about the ranks
            cut_off = {rank for ranks in self._processes.silent_hosts().values() for rank in ranks}
            for rank in running:
                known = self._ranks[rank]
                if rank in asked:
                    known.silent = rank not in answers and reached and rank not in cut_off
                if rank in answers:
                    known.stacks = stacks_in(answers[rank].stacks)
                    known.unseen = unseen_in(answers[rank].unseen)
                    if not self._processes.recorded:
                        known.switches = answers[rank].switches
                        known.looked_at = time.monotonic() - answers[rank].age_s
                elif self._processes.exit_status(rank) is None:
                    left = end - time.monotonic()
                    known.stacks = self._outside.stacks(rank, min(TIMEOUT_S, left)) if left > _LEAST_S else ()
        with self._lock:
            if follow:
                self.follow()
            return self._recording(answers, history, with_stacks=ask, whole=follow, end=end)

    def _recording(
        self,
        answers: Mapping[int, Looked],
        history: int,
        *,
        with_stacks: bool,
        whole: bool,
        end: float,
    ) -> Recording:
        running = {*self._running()}
        hosts = {name: ranks for name, ranks in self._processes.silent_hosts().items() if not running.isdisjoint(ranks)}
        silent = {rank for ranks in hosts.values() for rank in ranks}
        records = {
            rank: self._record_of(rank, answers, history, silent, with_stacks=with_stacks, whole=whole, end=end)
            for rank in self._ranks
        }
        records |= self._never_joined(records)
        now = time.monotonic()
        if whole or now - self._host_at > _HOST_S:
            self._host, self._host_at = machine.facts() | machine.oom_kills(self._memory_groups), now
        host = {**self._host, **{f"{name}_before": count for name, count in self._killed_before.items()}}
        if self.what:
            host["command"] = self.what
        if hosts:
            host["silent_hosts"] = {name: list(ranks) for name, ranks in hosts.items()}
        sources = self._sources.of(records)
        return Recording(
            len(self._ranks),
            records,
            sources,
            time.monotonic_ns(),
            host,
            edited=tuple(self._sources.edited),
            curves=self._curves.curves() if whole else None,
        )

    def _record_of(
        self,
        rank: int,
        answers: Mapping[int, Looked],
        history: int,
        silent: Container[int],
        *,
        with_stacks: bool,
        whole: bool,
        end: float,
    ) -> RankRecord:
        known, pid = self._ranks[rank], self._processes.pid(rank)
        status, ending = known.status, self.ending(rank)
        if ending is not None and ending.code < 0 and not ending.parent:
            ending = replace(ending, parent=self._processes.parent_of(rank))
        reader = known.reader if status.run == self._run else None  # None: it has not begun this run
        calls = reader.calls(history) if reader is not None else ()
        process = (
            known.process(answers.get(rank), self._outside.usage(rank), holders(rank, answers))
            if ending is None
            else Process("gone")
        )
        if not pid or rank in silent:
            process = Process("unknown")  # nothing of this rank has been seen on this host, or its own host is silent
        if (
            reader is None
            and process.activity == "idle"
            and not self._processes.ends_with_script
            and time.monotonic() - self._began < _BEGIN_S
        ):
            process = replace(process, activity="unknown")  # the request has not arrived yet
        events = reader.events() if reader is not None else ()
        return RankRecord(
            rank=rank,
            pid=pid,
            calls=calls,
            history=events + self._of_children(rank),
            stacks=known.stacks if ending is None and with_stacks else (),
            process=process,
            ending=ending,
            steps=status.steps,
            forwards=status.forwards,
            device=self._processes.device(rank),
            forgotten=calls[0].number - status.first_call if calls else 0,
            models=self._replicas.models(rank),
            samples=self._replicas.samples(rank),
            children=known.children(partial(self._outside.children, rank), end) if ending is None else (),
            output=logs.end(known.log) if ending is not None or with_stacks else "",
            events_forgotten=known.status.events_forgotten if reader is not None else 0,  # after they were read
            unnamed=reader.dropped if reader is not None else 0,
            marks=reader.marks(last=history) if reader is not None else (),
            unrecorded=not self._processes.recorded,
            path=known.path(self._run) if whole else None,
            unseen=known.unseen if ending is None and with_stacks else (),
        )

    def _never_joined(self, records: Mapping[int, RankRecord]) -> dict[int, RankRecord]:
        """The ranks that are missing and that no process is to become; of a single one, how the process failed that was to be it.

        While others run, another process may still be started as that rank.
        """
        absent = [rank for rank, record in records.items() if not record.pid and record.ending is None]
        over = all(record.ending is not None for rank, record in records.items() if rank not in absent)
        if not absent or (not over and self._processes.may_come()):
            return {}
        failed = self._processes.before_joining(absent[0]) if len(absent) == 1 else None
        ending, gone = failed if over else None, Process("gone")
        return {rank: replace(records[rank], ending=ending, unjoined=failed, process=gone) for rank in absent}

    def _of_children(self, rank: int) -> tuple[Event, ...]:
        """Events of a forked child that used the process group of its parent."""
        try:
            with open(os.path.join(self._folder, f"rank{rank}.box.child{self._run}")) as file:
                told = json.loads(file.read(4096))
        except (OSError, ValueError, RecursionError):
            return ()
        return (read(UsedAfterFork.TITLE, told),) if isinstance(told, dict) else ()


def _string(ranks: Mapping[int, RankProgress], rank: int, number: int) -> Any:
    """The JSON behind a number in a rank's box. Not a method: so an observer is freed as soon as it is dropped."""
    reader = ranks[rank].reader
    return reader.string(number) if reader is not None else None
