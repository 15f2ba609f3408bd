"""Monitors one run in a thread until its outcome is known, and keeps what is known of it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Any, TextIO

from ddpnb.errors import CannotWrite, Interrupted
from ddpnb.ranks.observe import logs
from ddpnb.ranks.observe.observer import Observer
from ddpnb.ranks.observe.output import Stream
from ddpnb.ranks.observe.watchdog import Watchdog
from ddpnb.ranks.rank_processes import Answer, OwnedRanks, RankView
from ddpnb.recording import arguments, phrases
from ddpnb.recording.calls import CallState
from ddpnb.recording.events.runs import FaultMissed, HoldMissed
from ddpnb.recording.files import write_private
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import Process, Recording
from ddpnb.render.views.status import status
from ddpnb.rules.diagnose import diagnose
from ddpnb.texts import relative
from ddpnb.world.warnings import Warnings

_LAST_LOOK_S = 3.0  # that a run which was interrupted may spend on ranks that do not answer
_HELD_S = 1.0  # between two looks whether ranks are held
_PASS_ON_S = 1.0  # after which they get the signal in any case


class RunMonitor:
    """Starts a run on ranks and monitors it.

    Args:
        processes: of all ranks of the World.
        folder: where the black boxes are.
        number: of the run.
        log_dir: folder for the output of each rank.
        ranks: those that are in the run.
        outcomes: for each rank of the World the file that says how the script ended.
        patience: seconds that a rank may be blocked outside any collective.
        stream: where to copy the output; None: nowhere.
        stream_limit: bytes after which the copy stops; None: never.
        launch_s: how long the launch took.
        leave_after_crash: wait no longer than ``patience`` for the others once a rank has failed.
        end_after_patience: a finding that only patience supports is a hang; else it is a warning, and the run continues.
        say: shows a warning; None: in the stream.
        interrupt: what Ctrl-C does while the outcome is awaited; None: raise KeyboardInterrupt.
        logs_are_removed: with the World.
        what: runs, in words: recordings of the run have it.
    """

    def __init__(
        self,
        processes: RankView,
        folder: str,
        number: int,
        log_dir: str,
        ranks: Sequence[int],
        outcomes: Mapping[int, str],
        *,
        patience: float,
        stream: TextIO | None = None,
        stream_limit: int | None = None,
        launch_s: float = 0.0,
        leave_after_crash: bool = False,
        end_after_patience: bool = False,
        say: Callable[[str], None] | None = None,
        interrupt: Callable[[], object] | None = None,
        logs_are_removed: bool = False,
        what: str = "",
    ) -> None:
        self.number = number
        self.what = what
        self.began_at = time.time()
        self._began = time.monotonic()
        self.log_dir = log_dir
        self.patience = patience
        self.ranks = list(ranks)
        self.logs = {rank: os.path.join(log_dir, f"rank{rank}.log") for rank in ranks}
        self.answers: dict[int, Answer] = {}
        self.known = threading.Event()
        self.diagnosis: Diagnosis | None = None  # set before the Recording that it is based on
        self.recording: Recording | None = None
        self.failure: Exception | None = None
        self.groups_closed = False  # by a release, while ranks were in it
        self._processes = processes
        self._folder = folder
        self._outcomes = outcomes
        self.observer = self.another_observer()
        self.observer.what = what
        self._stream = Stream(self.logs, stream, stream_limit)
        self._stopping = threading.Event()
        self._launch_s = launch_s
        self._kept = None if logs_are_removed else log_dir  # where the logs outlive the World
        self._say = say if say is not None else self._stream.say
        self._warnings = Warnings(self._say)
        self._held, self._next_look = False, 0.0  # whether ranks were held at the last look of somebody who waits
        self._watchdog = Watchdog(
            processes,
            self.observer,
            self.ranks,
            self.answers,
            self._stream,
            self._stopping,
            judge=partial(diagnose, patience=patience, end_after_patience=end_after_patience),
            patience=patience,
            leave_after_crash=leave_after_crash,
            end_after_patience=end_after_patience,
            warn=self._warnings.warn,
            withdraw=self._warnings.withdraw,
        )
        self._end_after_patience = end_after_patience
        self._interrupt = interrupt
        self._released = False
        self._thread = threading.Thread(target=self._follow, name=f"ddpnb run {number}", daemon=True)

    def start(
        self,
        engines: OwnedRanks,
        orders: Mapping[int, Mapping[str, Any]],
        payload: bytes | None,
        entry: Callable[..., Any],
    ) -> None:
        """Start the run on each rank, and begin to monitor it.

        Raises:
            CannotWrite: no space for the files of this run; no rank has begun it.
            WorldError: a host does not answer; no rank has begun it.
        """
        for rank in self._outcomes.keys() - orders.keys():  # a rank that is not in this run has ended it
            try:
                finished = {"how": "finished", "code": 0, "at_ns": time.monotonic_ns()}
                write_private(self._outcomes[rank], json.dumps(finished))
            except OSError as error:
                raise CannotWrite(
                    f"run {self.number} cannot begin: cannot write to {self._outcomes[rank]}: {error.strerror}.",
                    "Free some space in TMPDIR.",
                ) from None
        engines.provide(orders)  # a run that begins on some of them alone would hang
        for rank, order in orders.items():
            own = {**order, "run": self.number, "log": self.logs[rank], "outcome": self._outcomes[rank]}
            self.answers[rank] = engines.begin(rank, entry, own, payload)
        self.watch()

    def watch(self) -> None:
        """Begin to monitor a run that has been started."""
        self._thread.start()

    # -- what is known

    @property
    def began_ns(self) -> int:
        """When the run, or the monitoring of a job, began: nanoseconds of the monotonic clock."""
        return int(self._began * 1e9)

    @property
    def outcome(self) -> str:
        """As ``Run.outcome``."""
        if self._released:
            return "released"
        if self.diagnosis is None:
            return "running" if self.failure is None else "unknown"
        return self.diagnosis.outcome

    @property
    def warned(self) -> Diagnosis | None:
        """The warnings that stand while the run continues; None: there is none."""
        return self._warnings.standing() if self.diagnosis is None else None

    def await_outcome(self, timeout: float | None = None) -> None:
        """Wait until the outcome is known or cannot be known."""
        self._processes.check_owner()
        deadline = None if timeout is None else time.monotonic() + arguments.seconds("timeout", timeout, least=0)
        # Short waits: a wait without end cannot be interrupted on some systems.
        try:
            while not self.known.wait(0.2 if deadline is None else max(0.0, min(0.2, deadline - time.monotonic()))):
                if deadline is not None and time.monotonic() >= deadline:
                    break
                self._say_held()
        except KeyboardInterrupt:
            if self._interrupt is None:
                raise
            raise Interrupted(str(self._interrupt())) from None

    def _say_held(self) -> None:
        """Say once that ranks are held, for somebody who waits for an end that does not come meanwhile."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _HELD_S
        recording = self.observer.record(ask=False, with_locals=False, follow=False)
        held = {one.rank: one.doing for one in status(recording) if one.state is RankState.HELD}
        if held and not self._held:
            ranks = phrases.ranks(list(held), True)
            where = relative(next(iter(held.values())))
            self._say(f"{ranks} {phrases.verb(list(held), 'is', 'are')} held, and the run waits: {where}.")
        self._held = bool(held)

    def diagnose_now(self) -> tuple[Diagnosis, Recording]:
        """The findings of this moment."""
        recording = self.observer.record()
        return self._diagnosed(recording), recording

    def interrupted(self, pass_on: Callable[[], object], since_ns: int) -> Diagnosis:
        """The findings of this moment, for a run that gets a signal which ends it.

        Args:
            pass_on: gives it the signal. Called once this moment is recorded, or after a second.
            since_ns: when the signal came. How ranks end from then on follows from it.

        Takes at most a few seconds, also if ranks are unresponsive.
        """
        self._warnings.is_over = True
        found = self.diagnosis
        if found is not None:
            pass_on()
            return replace(found, outcome="interrupted")
        with ThreadPoolExecutor(1, "ddpnb last look") as pool:
            look = pool.submit(self.observer.record, outside_s=_LAST_LOOK_S)
            wait([look], _PASS_ON_S)
            pass_on()
            recording = _before(look.result(), since_ns)
        found = self._diagnosed(recording)
        self.recording = self.observer.with_account(recording)
        return replace(found, outcome="interrupted")

    def decided_by(self, status: int) -> None:
        """The command that started the ranks has ended, which decides what their endings mean."""
        if self.recording is not None and self.diagnosis is not None and self.recording.command is None:
            recording = replace(self.recording, command=status)
            changes = status == 0 and self.diagnosis.errors
            diagnosis = self._diagnosed(recording) if changes else replace(self.diagnosis, settled=True)
            self.diagnosis = replace(diagnosis, timing=self.diagnosis.timing)
            self.recording = recording

    def show_output(self) -> None:
        """Show what ranks have written since monitoring ended."""
        if self.known.is_set():
            self._stream.pump()

    def kept_logs(self) -> str:
        """A folder with the logs of the ranks that is kept after the World is closed."""
        if self._kept is None:
            self._kept = logs.keep(self.logs.values())
        return self._kept

    def another_observer(self) -> Observer:
        """A new Observer of the same ranks, independent of the one that monitors the run."""
        return Observer(self._processes, self._folder, self._outcomes, self.number, self.logs, self.began_ns)

    def is_in(self, rank: int) -> bool:
        """Whether this rank's process is still in the run."""
        answer = self.answers.get(rank)
        return self.observer.ending(rank) is None and not (answer is not None and answer.ready())

    def left_clean(self, rank: int) -> bool:
        """Whether the rank's process ended the run alive, with no call left in flight."""
        ending = self.observer.ending(rank)
        return (
            ending is not None
            and ending.how != "died"
            and (self.recording is None or not self.recording.ranks[rank].in_flight)
        )

    def broke_groups(self) -> bool:
        """Whether a call failed in the backend: the connections of its group are of no further use."""
        records = self.recording.ranks.values() if self.recording is not None else ()
        return any(call.state is CallState.FAILED for record in records for call in record.calls)

    def missed(self) -> list[str]:
        """The faults that were armed for this run and never triggered, and the holds that stopped nobody, as text."""
        missed: dict[str, list[int]] = {}
        for rank, record in self.recording.ranks.items() if self.recording is not None else ():
            for event in record.events(FaultMissed, HoldMissed):
                missed.setdefault(_missed(event), []).append(rank)
        return [text.format(phrases.ranks(ranks)) for text, ranks in missed.items()]

    # -- the thread

    def settle(self, *, released: bool = False) -> None:
        """Fix the diagnosis now: ranks of this run are about to be restarted or released."""
        self.stop_watching()
        if self.diagnosis is None:
            conclusion = self._conclude(self.observer.record())
            self._released = released and not conclusion.errors

    def abandon(self) -> None:
        """Stop monitoring ranks that are about to be ended: what is not settled by now says nothing."""
        self.stop_watching()
        if self.diagnosis is None:
            found = self._conclude(self.observer.record())
            if not found.settled:
                rest = tuple(finding for finding in found.findings if finding.severity != "error")
                self.diagnosis = replace(found, outcome="ok", findings=rest)

    def show_rest(self) -> None:
        """Show the last output of released ranks, without the messages of torch about closed connections."""
        self._stream.quiet = True
        self._stream.pump(last=True)

    def stop_watching(self) -> None:
        """Stop monitoring; the ranks are not touched."""
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=10)
        self.known.set()

    def _follow(self) -> None:
        try:
            recording = self._watchdog.watch()
            if recording is not None:
                self._conclude(recording)
        except Exception as error:  # the observer is expendable: the ranks are left alone
            self.failure = error
        finally:
            self._stream.pump(last=True)
            for missed in self.missed():
                self._stream.say(missed)
            self.known.set()

    def _conclude(self, recording: Recording) -> Diagnosis:
        conclusion = self._diagnosed(recording, since_ns=recording.last_progress_ns)
        self.recording = self.observer.with_account(recording)
        self.diagnosis = conclusion  # last: who sees it asks the recording at once
        return conclusion

    def _diagnosed(self, recording: Recording, since_ns: int = 0) -> Diagnosis:
        now = time.monotonic()
        timing = {"launch_s": self._launch_s, "run_s": now - self._began}
        timing["diagnosis_s"] = max(0.0, now - since_ns * 1e-9) if since_ns else 0.0
        found = diagnose(recording, self.patience, end_after_patience=self._end_after_patience)
        return replace(self._warnings.added_to(found), timing=timing)


def _before(recording: Recording, since_ns: int) -> Recording:
    """The recording, in which ranks that have ended since this moment have not: how they would continue is not known."""
    ranks = {
        rank: replace(record, ending=None, process=Process("unknown"))
        for rank, record in recording.ranks.items()
        if since_ns and record.ending is not None and record.ending.at_ns >= since_ns
    }
    return replace(recording, ranks={**recording.ranks, **ranks}) if ranks else recording


def _missed(event: FaultMissed | HoldMissed) -> str:
    """A sentence, with ``{}`` in the place of the ranks."""
    if isinstance(event, FaultMissed):
        text, why = f"the fault {event.fault!r} was never triggered on ", event.why or "nothing matched its conditions"
    else:
        text, why = (
            f"the hold {event.hold} stopped nobody on ",
            event.why or "its line was not passed, or nothing matched",
        )
    return f"{_braces(text)}{{}}: {_braces(why)}."


def _braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
