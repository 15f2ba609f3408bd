"""One probe of a bisection: a configuration of a script or a command runs in fresh processes, and ends."""

from __future__ import annotations

import os
import shlex
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ddpnb.errors import DdpnbError, ProbeEnded
from ddpnb.ranks import devices
from ddpnb.ranks.environment import working_directory
from ddpnb.ranks.forks import ForkServers
from ddpnb.ranks.jobs.spawned import Program
from ddpnb.recording.recording import Recording
from ddpnb.studies.bisection.command import Request
from ddpnb.studies.bisection.failure import Failure, failures
from ddpnb.studies.bisection.space import Probe
from ddpnb.studies.bisection.varied import Trying
from ddpnb.studies.bisection.worktrees import Repository
from ddpnb.world.command_run import CommandRun
from ddpnb.world.plain_run import PlainRun
from ddpnb.world.run import Run
from ddpnb.world.run_requests import check_script

NOTHING: Mapping[str, str] = MappingProxyType({})
_TAIL = 4096  # bytes of output in which the last line is looked for
_LINE = 200
_TICK_S = 0.02
_AGAIN = 2  # how often a probe begins again that was lost with the process that forks its ranks


@dataclass(frozen=True, slots=True)
class Ran:
    """How a probe went.

    ``failures``: all errors, the root cause first. ``reason``: for people, where it failed or could not run. ``ran``:
    whether it could. ``recording``: of the run that failed, or of the last; None: no rank made a process group.
    """

    failures: Sequence[Failure] = ()
    reason: str = ""
    seconds: float = 0.0
    ran: bool = True
    recording: Recording | None = None

    @property
    def code(self) -> str | None:
        return self.failures[0]["code"] if self.failures else None

    @property
    def finding(self) -> dict[str, Any] | None:
        """The first error as in the diagnosis's JSON; None: there was none."""
        return self.failures[0] if self.code is not None else None


def outcome(run: Run | CommandRun, recording: Recording | None, folder: str, began: float, last: str = "") -> Ran:
    """How a run went that is over.

    Args:
        run: the run.
        recording: of it.
        folder: in which it ran.
        began: when it did.
        last: its last line of output, which is why a program without a finding failed.
    """
    diagnosis = run.diagnosis
    found = failures(diagnosis, run.exit_status, folder)
    known = found and (found[0]["code"] or diagnosis.outcome == "hang" or not last)
    return Ran(found, found[0]["summary"] if known else last, time.monotonic() - began, recording=recording)


class CommandProber:
    """Runs probes of a command. Nothing of one is left when the next begins.

    Args:
        request: what is common to all.
        trying: what a probe runs; None: each runs the command as given.
        repository: where commits are probed.
    """

    def __init__(
        self, request: Request, trying: Callable[[Probe], Trying] | None = None, repository: Repository | None = None
    ) -> None:
        self.request, self.repository, self.directory = request, repository, working_directory()
        self.trying = trying or (lambda _: Trying(request.command))
        self._stopping = threading.Event()
        self._fork_servers = ForkServers() if request.fork else None

    @property
    def title(self) -> str:
        """What is searched."""
        return shlex.join(self.request.command)

    def typed(self, probe: Probe) -> str:
        """A configuration as a command line that can be typed."""
        trying, request = self.trying(probe), self.request
        backend = trying.own.get("--backend", request.backend)
        options = [
            *(["-n", trying.own.get("-n", str(request.size))] if request.script else []),
            *(["--backend", backend] if backend else []),
            *(["--patience", f"{request.patience:g}"] if request.patience != Request(()).patience else []),
            "--end-after-patience",
            *(["--fork"] if request.fork else []),
            *(["-m"] if request.module else []),
            *([] if request.script else ["--"]),
        ]
        return trying.typed(options)

    def commit(self, value: str) -> str:
        """A commit in one line; empty if there are none."""
        return self.repository.subject(value) if self.repository is not None else ""

    def stop(self) -> None:
        """End the probe that runs in another thread, or the next one."""
        self._stopping.set()

    def run(self, probe: Probe, environment: Mapping[str, str] = NOTHING) -> Ran:
        """Run a configuration, with further environment variables.

        Raises:
            ProbeEnded: ``stop()`` was called.
        """
        began, trying = time.monotonic(), self.trying(probe)
        try:
            with ExitStack() as stack:
                directory = self.directory
                if trying.commit is not None and self.repository is not None:
                    directory = stack.enter_context(self.repository.checked_out(trying.commit))
                for _ in range(1 + _AGAIN):
                    ran = self._ran(trying, directory, environment)
                    if ran is not None:
                        return ran
            reason = "the process that forks the ranks died"
        except ProbeEnded:
            raise
        except DdpnbError as error:
            reason = error.what
        return Ran((), reason, time.monotonic() - began, ran=False)

    def _ran(self, trying: Trying, directory: str, more: Mapping[str, str]) -> Ran | None:
        """Run it to its end, or until it is known that it never ends; None: it was lost, for a reason of ours."""
        environment = {**os.environ, **more}
        for name, value in trying.environment.items():
            environment.pop(name, None)
            if value is not None:
                environment[name] = value
        with tempfile.TemporaryDirectory(prefix="ddpnb-bisect-", ignore_cleanup_errors=True) as logs:
            common: dict[str, Any] = {
                "fence": "raise", "patience": self.request.patience, "end_after_patience": True, "log_dir": logs,
                "environment": environment, "directory": directory,
            }  # fmt: skip
            return (self._script if self.request.script else self._command)(trying, directory, logs, common)

    def _script(self, trying: Trying, directory: str, logs: str, common: dict[str, Any]) -> Ran | None:
        began, request, (script, *arguments) = time.monotonic(), self.request, trying.command
        if not request.module:
            check_script(os.path.join(directory, script))
        plan = devices.plan(int(trying.own.get("-n", request.size)), trying.own.get("--backend", request.backend))
        program = Program(script, tuple(arguments), request.module)
        with PlainRun(
            plan, program, fork=request.fork, stream=None, fork_servers=self._fork_servers, **common
        ) as plain:
            self._wait(lambda: plain.run.done)
            if plain.is_lost:
                return None
            run = plain.run.wait()
            failed = run.diagnosis.outcome != "ok" or run.exit_status
            last = _last_line(os.path.join(logs, "rank0.log")) if failed else ""
            return outcome(run, run.recording, directory, began, last)

    def _command(self, trying: Trying, directory: str, logs: str, common: dict[str, Any]) -> Ran:
        began = time.monotonic()
        with CommandRun(trying.command, backend=self.request.backend, apart=True, **common) as command:
            self._wait(command.poll)
            last = _last_line(os.path.join(logs, "output.log")) if command.status else ""
            if not command.status and command.run is None:
                last = "no process group was made: nothing was checked"
            recording = command.run.recording if command.run is not None else None
            return outcome(command, recording, directory, began, last)

    def _wait(self, is_over: Callable[[], bool]) -> None:
        """Wait for the end of a run.

        Raises:
            ProbeEnded: ``stop()`` was called.
        """
        while not is_over():
            if self._stopping.wait(_TICK_S):
                self._stopping.clear()
                raise ProbeEnded("the probe was ended.", "It has no answer: run it again, or judge it yourself.")


def _last_line(path: str) -> str:
    """The last line of an output that says something."""
    with suppress(OSError), open(path, "rb") as file:
        file.seek(max(os.path.getsize(path) - _TAIL, 0))
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip()[:_LINE] if lines else ""
    return ""
