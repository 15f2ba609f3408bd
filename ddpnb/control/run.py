"""A run: one script or function on all ranks, monitored until it ends or is known never to end."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from ddpnb import arguments
from ddpnb.diagnosis.diagnose import diagnose
from ddpnb.errors import CannotWrite, Interrupted, WorldError
from ddpnb.model import phrases
from ddpnb.model.findings import Diagnosis
from ddpnb.model.recording import Ending, Recording
from ddpnb.observe import logs
from ddpnb.observe.observer import Observer
from ddpnb.observe.output import Stream
from ddpnb.observe.verdict import Verdict
from ddpnb.observe.watchdog import Watchdog
from ddpnb.processes.rank_processes import Answer, RankProcesses
from ddpnb.render.account import TimeAccount
from ddpnb.timing.notes import model_notes

_LAST_LOOK_S = 3.0  # that a run which was interrupted may spend on ranks that do not answer


class Run:
    """One script or function on all ranks. Made by ``World.run``.

    ``wait()`` returns when the run has ended or is known never to end; ``outcome`` is then ``ok``, ``hang``,
    ``crash`` or ``divergence``. The ranks of a hang stay alive and can be inspected (``World.snapshot``).
    """

    def __init__(
        self,
        engines: RankProcesses,
        folder: str,
        number: int,
        log_dir: str,
        ranks: Sequence[int],
        outcomes: Mapping[int, str],
        *,
        patience: float,
        stream: TextIO | None,
        stream_limit: int | None,
        launch_s: float,
        leave_after_crash: bool = False,
        interrupt: Callable[[], object] | None = None,
        logs_are_removed: bool = False,
    ) -> None:
        self.number = number
        self.log_dir = log_dir
        self.patience = patience
        self._engines = engines
        self._folder = folder
        self._ranks = list(ranks)
        self._logs = {rank: os.path.join(log_dir, f"rank{rank}.log") for rank in ranks}
        self._outcomes = outcomes
        self.observer = Observer(engines, folder, self._outcomes, number, self._logs)
        self._stream = Stream(self._logs, stream, stream_limit)
        self._answers: dict[int, Answer] = {}
        self._known = threading.Event()
        self._stopping = threading.Event()
        self._verdict: Verdict | None = None
        self._recording: Recording | None = None
        self._launch_s = launch_s
        self._failure: Exception | None = None
        self._kept = None if logs_are_removed else log_dir  # where the logs outlive the world
        self._watchdog = Watchdog(
            engines,
            self.observer,
            self._ranks,
            self._answers,
            self._stream,
            self._stopping,
            patience=patience,
            leave_after_crash=leave_after_crash,
        )
        self._interrupt = interrupt
        self._released = False
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._follow, name=f"ddpnb run {number}", daemon=True)

    def start(self, orders: Mapping[int, Mapping[str, Any]], payload: bytes | None, entry: Callable[..., Any]) -> None:
        """Start the run on each rank, and begin to monitor it.

        Raises:
            CannotWrite: no space for the files of this run; no rank has begun it.
        """
        for rank in self._outcomes.keys() - orders.keys():  # it is not asked for anything: it has ended
            try:
                with open(self._outcomes[rank], "w") as file:
                    json.dump({"how": "finished", "code": 0, "at_ns": time.monotonic_ns()}, file)
            except OSError as error:
                raise CannotWrite(
                    f"run {self.number} cannot begin: cannot write to {self._outcomes[rank]}: {error.strerror}.",
                    "Free some space in TMPDIR.",
                ) from None
        for rank, order in orders.items():
            own = {**order, "run": self.number, "log": self._logs[rank], "outcome": self._outcomes[rank]}
            self._answers[rank] = self._engines.begin(rank, entry, own, payload)
        self._thread.start()

    # -- what a user asks

    def wait(self, timeout: float | None = None) -> Run:
        """Wait until the run has ended or is known never to end.

        Args:
            timeout: seconds to wait at most; None: no limit. ``done`` says whether the outcome is known.

        Raises:
            WorldError: a rank could not start the run, or monitoring failed.
        """
        self.await_outcome(timeout)
        if self._failure is not None:
            what = getattr(self._failure, "what", "") or f"{self._failure}."
            hint = getattr(self._failure, "hint", "")
            folder = self._kept_logs()
            logs_at = f"The output of the ranks is in {folder}." if folder else ""
            raise WorldError(f"monitoring of run {self.number} failed: {what}", f"{hint} {logs_at}".strip())
        return self

    def await_outcome(self, timeout: float | None = None) -> None:
        """As ``wait()``, whether or not the outcome can be known."""
        self._engines.check_owner()
        deadline = None if timeout is None else time.monotonic() + arguments.seconds("timeout", timeout, least=0)
        # Short waits: a wait without end cannot be interrupted on some systems.
        try:
            while not self._known.wait(0.2 if deadline is None else max(0.0, min(0.2, deadline - time.monotonic()))):
                if deadline is not None and time.monotonic() >= deadline:
                    break
        except KeyboardInterrupt:
            if self._interrupt is None:
                raise
            raise Interrupted(str(self._interrupt())) from None

    def _kept_logs(self) -> str:
        """A folder with the logs of the ranks that is kept after the World is closed."""
        if self._kept is None:
            self._kept = logs.keep(self._logs.values())
        return self._kept

    def another_observer(self) -> Observer:
        """A new Observer of the same ranks, independent of the one that monitors the run."""
        return Observer(self._engines, self._folder, self._outcomes, self.number, self._logs)

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._known.is_set()

    @property
    def diagnosis(self) -> Verdict:
        """The findings; while the run is in progress, those of this moment."""
        if self._verdict is not None:
            return self._verdict
        return self._timed(diagnose(self.observer.record(), self.patience))

    def interrupted(self) -> Verdict:
        """The findings of this moment, for a run that is about to be stopped.

        Takes at most a few seconds, also if ranks are unresponsive; signals are deferred meanwhile.
        """
        verdict = self._verdict
        if verdict is None:
            recording = self.observer.record(outside_s=_LAST_LOOK_S)
            verdict = self._timed(diagnose(recording, self.patience))
            self._recording = recording
        return Verdict.of(verdict, outcome="interrupted")

    @property
    def verdict(self) -> Verdict | None:
        """The diagnosis when the outcome is known; None before, and if monitoring failed."""
        return self._verdict

    @property
    def outcome(self) -> str:
        """``running``, ``ok``, ``hang``, ``crash``, ``divergence``, or ``released`` if the ranks were released first.

        ``unknown`` if monitoring failed: ``wait()`` says why.
        """
        if self._released:
            return "released"
        if self._verdict is None:
            return "running" if self._failure is None else "unknown"
        return self._verdict.outcome

    @property
    def recording(self) -> Recording | None:
        """The Recording that the verdict is based on; None while the run is in progress."""
        return self._recording

    @property
    def account(self) -> TimeAccount:
        """Where the time of each rank went, and which ranks the others waited for; also while it runs."""
        recording = self._recording
        found = self.observer.account(recording.taken_ns if recording is not None else time.monotonic_ns())
        return TimeAccount.of(found, model_notes(recording) if recording is not None else ())

    def is_in(self, rank: int) -> bool:
        """Whether this rank's process is still in the run."""
        answer = self._answers.get(arguments.member("rank", rank, self._outcomes))
        return self.observer.ending(rank) is None and not (answer is not None and answer.ready())

    @property
    def endings(self) -> dict[int, Ending | None]:
        """How the script ended on each rank; None if it has not."""
        return {rank: self.observer.ending(rank) for rank in self._ranks}

    @property
    def results(self) -> list[Any]:
        """What the function returned on each rank, in rank order; None if it did not return.

        The ranks send pickles. They are loaded only when this is read, since unpickling can run code.
        """
        found: list[Any] = []
        for rank in self._ranks:
            ending = self.observer.ending(rank)
            returned = ending is not None and ending.how == "finished"
            found.append(self._answers[rank].load(timeout=30) if returned and rank in self._answers else None)
        return found

    @property
    def missed(self) -> list[str]:
        """The faults that were armed for this run and never triggered, as text."""
        found: dict[tuple[str, str], list[int]] = {}
        for rank, record in self._recording.ranks.items() if self._recording is not None else ():
            for phase in record.phases:
                if phase.name == "fault missed":
                    told = str(phase.facts.get("fault", "")), str(phase.facts.get("why", ""))
                    found.setdefault(told, []).append(rank)
        return [
            f"the fault {fault!r} was never triggered on {phrases.ranks(ranks)}: {why or 'nothing matched its conditions'}."
            for (fault, why), ranks in found.items()
        ]

    def left_clean(self, rank: int) -> bool:
        """Whether the rank's process ended the run alive, with no call left in flight."""
        arguments.member("rank", rank, self._outcomes)
        ending, recording = self.observer.ending(rank), self._recording
        return (
            ending is not None and ending.how != "died" and (recording is None or not recording.ranks[rank].in_flight)
        )

    def log(self, rank: int) -> str:
        """The complete standard output and error of this rank."""
        return logs.whole(self._logs[arguments.member("rank", rank, self._logs)])

    @property
    def exit_status(self) -> int:
        """What ``ddpnb run`` exits with: 0, the script's own status, 3 (hang) or 4 (divergence)."""
        if self.outcome == "crash":
            codes = [e.code for e in self._in_order() if not e.well]
            first = codes[0] if codes else 1
            return 128 - first if first < 0 else first or 1
        return {"ok": 0, "hang": 3, "divergence": 4}.get(self.outcome, 1)

    def _in_order(self) -> list[Ending]:
        """The endings, those of the root cause first."""
        culprits = {rank for finding in self.diagnosis.errors[:1] for rank in finding.culprits}
        ended = [(rank, e) for rank, e in self.endings.items() if e is not None]
        return [e for rank, e in sorted(ended, key=lambda one: (one[0] not in culprits, one[1].at_ns))]

    def __repr__(self) -> str:
        return f"<Run {self.number}: {self.outcome}, {len(self._ranks)} ranks, logs in {self.log_dir}>"

    # -- the watcher's thread

    def settle(self, *, released: bool = False) -> None:
        """Fix the verdict now: ranks of this run are about to be restarted or released."""
        self.stop_watching()
        if self._verdict is None:
            self._conclude(self.observer.record())
            self._released = released and not self.diagnosis.errors

    def show_rest(self) -> None:
        """Show the last output of released ranks, without the messages of torch about closed connections."""
        self._stream.quiet = True
        self._stream.pump(last=True)

    def stop_watching(self) -> None:
        """Stop monitoring; the ranks are not touched."""
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=10)
        self._known.set()

    def _follow(self) -> None:
        try:
            recording = self._watchdog.watch()
            if recording is not None:
                self._conclude(recording)
        except Exception as error:  # the observer is expendable: the ranks are left alone
            self._failure = error
        finally:
            self._stream.pump(last=True)
            for missed in self.missed:
                self._stream.say(missed)
            self._known.set()

    def _conclude(self, recording: Recording) -> None:
        self._recording = recording
        self._verdict = self._timed(diagnose(recording, self.patience))

    def _timed(self, found: Diagnosis) -> Verdict:
        recording = self._recording
        timing = {"launch_s": self._launch_s, "run_s": time.monotonic() - self._began}
        stopped = recording.last_progress_ns if recording is not None else 0
        timing["diagnosis_s"] = max(0.0, time.monotonic() - stopped * 1e-9) if stopped else 0.0
        return Verdict.of(found, timing=timing)
