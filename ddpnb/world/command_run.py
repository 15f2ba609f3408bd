"""A launch command whose ranks are found, monitored and diagnosed: what ``ddpnb run -- COMMAND`` starts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import IO, TYPE_CHECKING

from ddpnb.errors import WorldError
from ddpnb.ranks.exit_reasons import in_words
from ddpnb.ranks.folder import Folders
from ddpnb.ranks.jobs.command import Command, may_leave_host
from ddpnb.ranks.jobs.injection import injected
from ddpnb.ranks.jobs.job_processes import Identity, JobProcesses
from ddpnb.ranks.jobs.kept_connections import KeptConnections
from ddpnb.recording.files import private
from ddpnb.recording.findings import Diagnosis, Finding
from ddpnb.rules.outcome import is_refused
from ddpnb.texts import printable
from ddpnb.world.before_group import BeforeGroup
from ddpnb.world.end_by_signal import StartedJob, grace_s
from ddpnb.world.group_watch import GroupWatch
from ddpnb.world.plain_run import prepare_logs
from ddpnb.world.run import Run
from ddpnb.world.run_monitor import RunMonitor

if TYPE_CHECKING:
    from ddpnb.ranks.remote.job_hosts import JobHosts

_TICK_S = 0.05
_MORE_S = 60.0  # that processes which a command has left may take to become ranks
_LEFT_S = 0.2  # between two looks at what an ended command has left
_GIVEN_UP = 6  # times the patience without a process group, all idle, after which a command that runs apart hangs
_OUTPUT_S = 5.0  # for the last output after the end of a command
_LEFT_ALONE_S = 5.0  # that ranks whose launcher has failed may take to end by themselves
_LAUNCHER_S = 5.0  # that a launcher takes to end after its ranks
_FOR_PROGRAMS = (signal.SIGUSR1, signal.SIGUSR2)  # signals that do not end a command
_SHUTDOWN = re.compile(r"--shutdown[-_]timeout[= ](\d{1,9})\b")  # of torchrun
_ATTEMPTS = 4  # that failed and are named
_WORST = ("ok", "released", "crash", "divergence", "hang")


class CommandRun(StartedJob):
    """A command with all its ranks. Use it as a context manager: leaving it early ends the command.

    Args:
        command: program and arguments, as typed without ddpnb.
        fence, patience, end_after_patience: as for ``launch()``.
        backend: that scripts get, whichever they ask for; None: the one they ask for.
        log_dir: folder for a copy of the output; None: there is none.
        apart: its output is only copied, it reads nothing, and what it has left running in the end is ended too.
        environment: to begin with; None: that of this process.
        directory: where the command runs; None: where this process does.

    Raises:
        UsageError: there is no such program.
        LaunchError: the system refuses a process.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        fence: str,
        patience: float,
        end_after_patience: bool = False,
        backend: str | None,
        log_dir: str | None,
        apart: bool = False,
        environment: Mapping[str, str] | None = None,
        directory: str | None = None,
    ) -> None:
        self.status: int | None = None  # of the command
        self._words, self._apart = tuple(command), apart
        self._patience, self._end_after_patience = patience, end_after_patience
        self._groups: dict[str, GroupWatch] = {}
        self._ended: float | None = None  # when the command had ended
        self._said: set[int] = set()  # processes that are not recorded
        self._hangs = False  # before any process group was made
        self._signalled = False  # it was given a signal that ends it
        self._left: float | None = None  # since when it has failed, and left ranks that live
        self._left_told = False  # these got SIGTERM
        with ExitStack() as undo:
            self._folders = Folders(0)
            undo.callback(self._folders.remove)
            self._connections = KeptConnections(self._folders.memory)
            undo.callback(self._connections.close)
            given = os.environ if environment is None else environment
            recorded = injected(given, self._folders.memory, fence, backend)
            output = subprocess.PIPE if log_dir is not None else None
            self._hosts = _other_hosts(command, given, self._folders.memory)
            if self._hosts is not None:
                recorded |= self._hosts.variables
                undo.callback(self._leave_hosts)
            given_input = subprocess.DEVNULL if apart else None
            self._copying: threading.Thread | None = None
            if log_dir is not None:
                prepare_logs(log_dir, ())
            self._command = Command(command, self._folders.memory, recorded, output, directory, given_input)
            undo.callback(self._command.close)
            undo.callback(self._end_command)
            self._before = BeforeGroup(
                self._command.pid,
                elsewhere=self._hosts is not None,
                patience=patience,
                say=_say,
                folder=self._folders.memory,
            )
            if log_dir is not None and self._command.output is not None:
                self._copying = _copy(self._command.output, os.path.join(log_dir, "output.log"), not apart)
            self._end = undo.pop_all()

    # -- what runs

    def wait(self) -> None:
        """Wait until the command has ended with all its ranks, or ranks can never continue."""
        while not self.poll():
            time.sleep(_TICK_S)

    def poll(self) -> bool:
        """Whether the command has ended with all its ranks, or ranks can never continue."""
        status = self._command.status
        for folder in self._command.starts():
            if folder not in self._groups:
                self._groups[folder] = GroupWatch(
                    self._processes_in(folder), self._patience, self._end_after_patience, _say
                )
            self._look(self._groups[folder])
        monitors = self._monitors
        if any(group.is_stuck for group in self._groups.values()):
            return True
        if status:
            self._end_what_is_left(status)
        if status is not None and not self._more_may_come() and all(monitor.known.is_set() for monitor in monitors):
            self.status = status
            for group in self._last:
                if group.monitor is not None:
                    group.monitor.decided_by(status)
            if self._apart:  # what it has left running would keep the output open
                self._command.end()
            if self._copying is not None:
                self._copying.join(_OUTPUT_S)
            return True
        if status is None and not monitors and self._before.is_due:
            self.say_unrecorded()
            self._before.look()
            self._hangs = self._apart and self._before.hangs(_GIVEN_UP * self._patience)
        return self._hangs

    def _processes_in(self, folder: str) -> JobProcesses:
        if self._hosts is None:
            return JobProcesses(folder)
        from ddpnb.ranks.remote.job_ranks import JobOnHosts

        return JobOnHosts(folder, self._hosts)

    @property
    def _monitors(self) -> list[RunMonitor]:
        return [group.monitor for group in self._groups.values() if group.monitor is not None]

    def _look(self, group: GroupWatch) -> None:
        begun = group.begun
        group.look()
        if group.begun and not begun:
            for earlier in self._groups.values():
                if earlier is not group and not earlier.living:
                    earlier.is_followed = True

    def _end_what_is_left(self, status: int) -> None:
        """Ranks whose launcher has failed, or was killed, end too: by themselves, by SIGTERM, or by force.

        After a command that succeeded they are meant to live, and are watched until they end.
        """
        now, living = time.monotonic(), self._living()
        if not living:
            return
        self._left = self._left or now
        if now - self._left > _LEFT_ALONE_S and not self._left_told:
            self._left_told = True
            for monitor in self._monitors:
                monitor.abandon()
            _say(f"the command {in_words(status)}, and left {len(living)} ranks that run: they get SIGTERM.")
            self._command.forward(signal.SIGTERM, [known.pid for known in living if known.here])
        if self._apart or now - self._left > _LEFT_ALONE_S + grace_s():
            self._command.end()

    def _more_may_come(self) -> bool:
        """Whether ranks live, or may still be made by what the command has left running; if not, none is waited for."""
        groups = list(self._groups.values())
        if any(group.living and not group.is_known for group in groups):
            return True
        now = time.monotonic()
        if self._ended is None:
            self._ended = now
        begun = [group for group in groups if group.begun]
        if begun and all(group.is_known for group in begun):
            return False
        if now - self._ended < (self._patience if self._monitors else _MORE_S):
            time.sleep(_LEFT_S)
            if self._command.leaves_processes():
                return True
        for monitor in self._monitors:
            monitor.observer.expect_no_more()
        return False

    def say_unrecorded(self) -> None:
        """Say which processes are not recorded, each once."""
        for process in self._command.unrecorded():
            if process.pid not in self._said:
                self._said.add(process.pid)
                _say(f"{process}.")

    def keep(self) -> None:
        """Leave a job that hangs as it is, until it ends."""
        self._connections.keep()

    def wait_for_end(self) -> None:
        """Wait until the command has ended."""
        while self._command.status is None:
            time.sleep(_TICK_S)

    # -- signals

    def forward(self, number: int) -> None:
        """Give a signal to the command; to its ranks once it has ended."""
        self._signalled |= number not in _FOR_PROGRAMS
        self._command.forward(number, [known.pid for known in self._living() if known.here])

    def _living(self) -> list[Identity]:
        return [known for group in list(self._groups.values()) for known in group.living]

    @property
    def lives(self) -> bool:
        """Whether the command, or a rank of it, has not ended."""
        self.status = self._command.status
        return self.status is None or bool(self._living())

    @property
    def grace_s(self) -> float:
        """How long the command may take to end after a signal: a launcher gives its ranks as long, and then ends itself."""
        given = _SHUTDOWN.search(" ".join(self._words))
        return (float(given[1]) if given else grace_s()) + _LAUNCHER_S

    @property
    def own_status(self) -> int | None:
        """The exit status of a command that has ended by itself after a signal, as a shell has it."""
        return _of_shell(self.status) if self.status is not None else None

    # -- the end

    @property
    def _ends_all(self) -> bool:
        """Whether what the command has started ends now; else what it has left running is meant to."""
        return self.status is None or self._apart or self._signalled

    def _end_command(self) -> None:
        if self._ends_all:
            if self._hosts is not None:
                self._hosts.forget()
            self._command.end(at_once=self._signalled)

    def _leave_hosts(self) -> None:
        assert self._hosts is not None
        self._hosts.close(end=self._ends_all)

    def close(self) -> None:
        for monitor in self._monitors:
            monitor.stop_watching()
        super().close()

    # -- what is known

    @property
    def folder(self) -> str:
        """Where ``ddpnb.attach()`` finds the ranks that decided the outcome."""
        hung = [group for group in self._groups.values() if group.monitor and group.monitor.outcome == "hang"]
        return hung[0].processes.folder if hung else self._folders.memory

    @property
    def runs(self) -> list[Run]:
        """The process groups that were started, in order."""
        return [Run(monitor) for monitor in self._monitors]

    @property
    def run(self) -> Run | None:
        """The one that says how the job ended; None: there was none."""
        final = self._final
        return Run(final) if final is not None else None

    @property
    def _final(self) -> RunMonitor | None:
        """The worst of those after which the command did not continue.

        If these succeeded, and the command failed nevertheless, the last one that failed.
        """
        last = self._last
        if self.status and not any(group.has_failed for group in last):
            last = [group for group in self._groups.values() if group.has_failed][-1:] or last
        monitors = [group.monitor for group in last if group.monitor is not None]
        return max(monitors, key=lambda one: _WORST.index(one.outcome) if one.outcome in _WORST else 0, default=None)

    @property
    def _last(self) -> list[GroupWatch]:
        """Those that have not failed, or after which the command did not continue."""
        return [group for group in self._groups.values() if not (group.is_followed and group.has_failed)]

    @property
    def diagnosis(self) -> Diagnosis:
        """The findings; a command that failed otherwise has crashed."""
        run = self.run
        diagnosis = run.diagnosis if run is not None else Diagnosis("hang" if self._hangs else "ok")
        if self.status and diagnosis.outcome == "ok":
            diagnosis = replace(diagnosis, outcome="crash")
        return replace(diagnosis, findings=(*diagnosis.findings, *self._failed_before()))

    def _failed_before(self) -> list[Finding]:
        """Why attempts failed after which the command continued, as notes; of many the last."""
        final = self._final
        failed = [
            replace(
                error, severity="note", summary=f"Attempt {number} failed, and the command continued: {error.summary}"
            )
            for number, group in enumerate(self._groups.values(), 1)
            if (monitor := group.monitor) is not None
            and monitor is not final
            and group.is_followed
            and group.has_failed
            if monitor.diagnosis is not None
            for error in monitor.diagnosis.errors[:1]
        ]
        return failed[-_ATTEMPTS:]

    @property
    def exit_status(self) -> int:
        """What ``ddpnb run`` exits with: the status of the command, unless ddpnb has ended it, or its replicas diverged."""
        final = self._final
        if final is not None and self._counts(final):
            return Run(final).exit_status
        return _of_shell(self.status or 0)

    def _counts(self, final: RunMonitor) -> bool:
        """Whether the status is that of the outcome, and not that of the command."""
        refused = final.recording is not None and is_refused(final.recording)
        return (
            self.status is None
            or (final.outcome == "divergence" and not self.status)
            or (final.outcome == "hang" and refused)
        )


def _of_shell(status: int) -> int:
    """An exit status as a shell has it."""
    return 128 - status if status < 0 else status


def _other_hosts(command: Sequence[str], environment: Mapping[str, str], folder: str) -> JobHosts | None:
    """What the agents of other hosts connect to, if the command may start ranks there and they can."""
    if not may_leave_host(command, environment):
        return None
    from ddpnb.ranks.remote.job_hosts import JobHosts

    try:
        return JobHosts(folder)
    except WorldError as error:
        _say(f"ranks on other hosts are not watched: {error}")
        return None


def _say(text: str) -> None:
    with suppress(OSError, ValueError):
        print(f"ddpnb: {printable(text)}", file=sys.stderr, flush=True)


def _copy(source: IO[bytes], path: str, shown: bool) -> threading.Thread:
    """Copy what a command writes to a file and, if it is to be shown, to this process's standard output."""

    def copy() -> None:
        with source, open(path, "wb", opener=private) as file:
            while block := source.read1(1 << 16):  # type: ignore[attr-defined]
                file.write(block)
                if shown:
                    with suppress(OSError, ValueError):
                        sys.stdout.buffer.write(block)
                        sys.stdout.buffer.flush()

    thread = threading.Thread(target=copy, name="ddpnb output", daemon=True)
    thread.start()
    return thread
