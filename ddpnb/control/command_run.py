"""A launch command whose ranks are found, monitored and diagnosed: what ``ddpnb run -- COMMAND`` starts."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from types import TracebackType
from typing import IO, TYPE_CHECKING

from ddpnb.control.before_group import BeforeGroup
from ddpnb.control.job_ranks import monitor_job
from ddpnb.control.plain_run import prepare_logs
from ddpnb.control.run import Run
from ddpnb.control.run_monitor import RunMonitor
from ddpnb.errors import WorldError
from ddpnb.model.findings import Diagnosis
from ddpnb.processes.folder import Folders
from ddpnb.processes.jobs.command import Command, local_size, may_leave_host
from ddpnb.processes.jobs.injection import injected
from ddpnb.processes.jobs.job_processes import JobProcesses
from ddpnb.processes.jobs.kept_connections import KeptConnections
from ddpnb.render.text import printable

if TYPE_CHECKING:
    from ddpnb.processes.remote.jobs.hosts import JobHosts

_TICK_S = 0.05
_MORE_S = 60.0  # that processes which a command has left may take to become ranks
_LEFT_S = 0.2  # between two looks at what an ended command has left
_GIVEN_UP = 6  # times the patience without a process group, all idle, after which a command that runs apart hangs
_OUTPUT_S = 5.0  # for the last output after the end of a command
_WORST = ("ok", "released", "crash", "divergence", "hang")


class GroupWatch:
    """The ranks of one start of a process group: gathered, then monitored.

    Args:
        processes: of its ranks.
        patience: seconds that a rank may be blocked outside any collective, and that further ranks are waited for.
    """

    def __init__(self, processes: JobProcesses, patience: float) -> None:
        self.processes = processes
        self.monitor: RunMonitor | None = None
        self._patience = patience
        self._count, self._since = 0, time.monotonic()

    def look(self) -> None:
        """Begin to monitor once all ranks of this host are there, or no more have come for some time."""
        if self.monitor is not None:
            return
        found, now = self.processes.found(), time.monotonic()
        if len(found) != self._count:
            self._count, self._since = len(found), now
        if not found:
            return
        ended = any(self.processes.exit_status(rank) is not None for rank in found)
        if len(found) >= local_size(self.processes) or ended or now - self._since > self._patience:
            size = max(known.size for known in found.values())
            self.monitor = monitor_job(self.processes, range(size), self._patience)


class CommandRun:
    """A command with all its ranks. Use it as a context manager: leaving it early ends the command.

    Args:
        command: program and arguments, as typed without ddpnb.
        fence, patience: as for ``launch()``.
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
        backend: str | None,
        log_dir: str | None,
        apart: bool = False,
        environment: Mapping[str, str] | None = None,
        directory: str | None = None,
    ) -> None:
        self.status: int | None = None  # of the command
        self._patience, self._apart = patience, apart
        self._groups: dict[str, GroupWatch] = {}
        self._ended: float | None = None  # when the command had ended
        self._said: set[int] = set()  # processes that are not recorded
        self._hangs = False  # before any process group was made
        with ExitStack() as undo:
            self._folders = Folders(0)
            undo.callback(self._folders.remove)
            undo.callback(KeptConnections(self._folders.memory).close)
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
            undo.callback(self._end_command)
            self._before = BeforeGroup(
                self._command.pid, elsewhere=self._hosts is not None, patience=patience, say=_say
            )
            if log_dir is not None and self._command.output is not None:
                self._copying = _copy(self._command.output, os.path.join(log_dir, "output.log"), not apart)
            self._end = undo.pop_all()

    def __enter__(self) -> CommandRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
                self._groups[folder] = GroupWatch(self._processes_in(folder), self._patience)
            self._groups[folder].look()
        monitors = self._monitors
        if any(monitor.known.is_set() and monitor.outcome == "hang" for monitor in monitors):
            return True
        if status is not None and all(monitor.known.is_set() for monitor in monitors) and not self._more_may_come():
            self.status = status
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
        from ddpnb.processes.remote.jobs.ranks import JobOnHosts

        return JobOnHosts(folder, self._hosts)

    @property
    def _monitors(self) -> list[RunMonitor]:
        return [group.monitor for group in self._groups.values() if group.monitor is not None]

    def _more_may_come(self) -> bool:
        """Whether ranks live that are not monitored yet, or may still be made by what the command has left running."""
        waiting = [group.processes for group in self._groups.values() if group.monitor is None]
        if any(processes.alive(rank) for processes in waiting for rank in processes.found()):
            return True
        now = time.monotonic()
        if self._ended is None:
            self._ended = now
        if self._monitors or now - self._ended > _MORE_S:
            return False
        time.sleep(_LEFT_S)
        return self._command.leaves_processes()

    def say_unrecorded(self) -> None:
        """Say which processes are not recorded, each once."""
        for process in self._command.unrecorded():
            if process.pid not in self._said:
                self._said.add(process.pid)
                _say(f"{process}.")

    def wait_for_end(self) -> None:
        """Wait until the command has ended."""
        while self._command.status is None:
            time.sleep(_TICK_S)

    @property
    def _ends_all(self) -> bool:
        """Whether what the command has started ends now; else what it has left running is meant to."""
        return self.status is None or self._apart

    def _end_command(self) -> None:
        if self._ends_all:
            if self._hosts is not None:
                self._hosts.forget()
            self._command.end()

    def _leave_hosts(self) -> None:
        assert self._hosts is not None
        self._hosts.close(end=self._ends_all)

    def close(self) -> None:
        """End the command if it still runs, and remove the files."""
        for monitor in self._monitors:
            monitor.stop_watching()
        self._end.close()

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
        """The one that says how the job ended: the worst, or the last if the command succeeded; None: there was none."""
        runs = self.runs
        if self.status == 0:  # a launcher has restarted what failed
            runs = [run for run in runs if run.outcome != "crash"] or runs[-1:]
        return max(runs, key=lambda run: _WORST.index(run.outcome) if run.outcome in _WORST else 0, default=None)

    @property
    def diagnosis(self) -> Diagnosis:
        """The findings; a command that failed otherwise has crashed."""
        run = self.run
        diagnosis = run.diagnosis if run is not None else Diagnosis("hang" if self._hangs else "ok")
        return replace(diagnosis, outcome="crash") if self.status and diagnosis.outcome == "ok" else diagnosis

    @property
    def exit_status(self) -> int:
        """What ``ddpnb run`` exits with."""
        run = self.run
        if run is not None and run.outcome in ("hang", "divergence"):
            return run.exit_status
        if self.status:
            return 128 - self.status if self.status < 0 else self.status
        return run.exit_status if run is not None else 0


def _other_hosts(command: Sequence[str], environment: Mapping[str, str], folder: str) -> JobHosts | None:
    """What the agents of other hosts connect to, if the command may start ranks there and they can."""
    if not may_leave_host(command, environment):
        return None
    from ddpnb.processes.remote.jobs.hosts import JobHosts

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
        with source, open(path, "wb") as file:
            while block := source.read1(1 << 16):  # type: ignore[attr-defined]
                file.write(block)
                if shown:
                    with suppress(OSError, ValueError):
                        sys.stdout.buffer.write(block)
                        sys.stdout.buffer.flush()

    thread = threading.Thread(target=copy, name="ddpnb output", daemon=True)
    thread.start()
    return thread
