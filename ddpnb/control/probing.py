"""One probe of a bisection: a configuration of a script or a command runs in fresh processes, and ends."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from ddpnb.bisection.failure import Failure, failures
from ddpnb.bisection.varied import Trying
from ddpnb.control.command_run import CommandRun
from ddpnb.control.plain_run import PlainRun
from ddpnb.control.run_requests import check_script
from ddpnb.control.worktrees import Repository
from ddpnb.errors import DdpnbError, ProbeEnded, UsageError
from ddpnb.model.findings import Diagnosis
from ddpnb.model.recording import Recording
from ddpnb.processes import devices
from ddpnb.processes.environment import ReservedPort, working_directory
from ddpnb.processes.jobs.parents import Parents
from ddpnb.processes.jobs.spawned import Program

_TAIL = 4096  # bytes of output in which the last line is looked for
_LINE = 200
_Ended = tuple[Diagnosis, int, str, Recording | None]  # with the exit status and the last line of output
_TICK_S = 0.02
_MOST_JOBS = 64
_AGAIN = 2  # how often a probe begins again that was lost with the process that forks its ranks
_PORTS = ("MASTER_PORT", "PET_MASTER_PORT")  # the second is that of torchrun


@dataclass(frozen=True, slots=True)
class Job:
    """What is the same for all probes.

    ``script``: the command is a script with arguments, and not a launch command. ``module``: it is a module. ``size``:
    number of ranks of a script. ``backend``, ``patience``, ``fork``: as for ``ddpnb run``. ``jobs``: how many probes run at
    the same time.

    Raises:
        UsageError: jobs is no number of probes.
    """

    script: bool = True
    module: bool = False
    size: int = 2
    backend: str | None = None
    patience: float = 10.0
    fork: bool = False
    jobs: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.jobs <= _MOST_JOBS:
            raise UsageError(f"jobs is {self.jobs}.", f"Give a number of probes from 1 to {_MOST_JOBS}.")


@dataclass(frozen=True, slots=True)
class Ran:
    """How a probe went. ``finding``: the first error as in the diagnosis's JSON; None: there was none.

    ``failures``: all errors, the root cause first. ``reason``: for people, where it failed or could not run. ``ran``:
    whether it could. ``recording``: of the run that failed, or of the last; None: no rank made a process group.
    """

    failures: tuple[Failure, ...] = ()
    finding: dict[str, Any] | None = None
    reason: str = ""
    seconds: float = 0.0
    ran: bool = True
    recording: Recording | None = None


@dataclass
class Prober:
    """Runs probes. Nothing of one is left when the next begins.

    Args:
        job: what is common to all.
        repository: where commits are probed.
    """

    job: Job
    repository: Repository | None = None
    directory: str = field(default_factory=working_directory)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _parents: Parents | None = None  # of forked ranks

    def __post_init__(self) -> None:
        if self.job.fork:
            self._parents = Parents()

    def options(self, trying: Trying) -> list[str]:
        """The options of ``ddpnb run`` that make a probe's ranks."""
        job = self.job
        backend = trying.own.get("--backend", job.backend)
        common = [
            *(["--backend", backend] if backend else []),
            *(["--patience", f"{job.patience:g}"] if job.patience != Job().patience else []),
            "--end-after-patience",
        ]
        if not job.script:
            return common
        return [
            *("-n", trying.own.get("-n", str(job.size))),
            *common,
            *(["--fork"] if job.fork else []),
            *(["-m"] if job.module else []),
        ]

    def run(self, trying: Trying) -> Ran:
        """Run a configuration to its end, or until it is known that it never ends.

        Raises:
            ProbeEnded: ``stop()`` was called.
        """
        with self.start(trying) as probing:
            while not probing.poll():
                self.tick()
            return probing.wait()

    def tick(self) -> None:
        """Wait a moment for probes that run.

        Raises:
            ProbeEnded: ``stop()`` was called.
        """
        if self._stopping.wait(_TICK_S):
            self._stopping.clear()
            raise ProbeEnded("the probe was ended.", "It has no answer: run it again, or judge it yourself.")

    def stop(self) -> None:
        """End the probe that runs in another thread, or the next one."""
        self._stopping.set()

    def start(self, trying: Trying) -> Probing:
        """Begin to run a configuration."""
        return Probing(self, trying)

    def started(self, trying: Trying, directory: str, stack: ExitStack) -> _Run:
        """The processes of a probe; what must be ended with them is put on the stack.

        Raises:
            DdpnbError: they cannot be started.
        """
        environment = {**os.environ, **{name: value for name, value in trying.environment.items() if value is not None}}
        for name, value in trying.environment.items():
            if value is None:
                environment.pop(name, None)
        logs = stack.enter_context(tempfile.TemporaryDirectory(prefix="ddpnb-bisect-", ignore_cleanup_errors=True))
        if self.job.script:
            return _Script(self._script(trying, directory, environment, logs, stack), logs)
        if self.job.jobs > 1:  # a launcher without a given port takes the same one each time
            reserved = ReservedPort()
            stack.callback(reserved.release)
            environment |= dict.fromkeys(_PORTS, str(reserved.port))
        return _Command(self._command(trying, directory, environment, logs, stack), logs)

    def _script(
        self, trying: Trying, directory: str, environment: Mapping[str, str], logs: str, stack: ExitStack
    ) -> PlainRun:
        script, *arguments = trying.command
        if not self.job.module:
            check_script(os.path.join(directory, script))
        size = int(trying.own.get("-n", self.job.size))
        run = PlainRun(
            devices.plan(size, trying.own.get("--backend", self.job.backend)),
            Program(script, tuple(arguments), self.job.module),
            fork=self.job.fork,
            fence="raise",
            patience=self.job.patience,
            end_after_patience=True,
            log_dir=logs,
            stream=None,
            environment=environment,
            directory=directory,
            parents=self._parents,
        )
        return stack.enter_context(run)

    def _command(
        self, trying: Trying, directory: str, environment: Mapping[str, str], logs: str, stack: ExitStack
    ) -> CommandRun:
        run = CommandRun(
            trying.command,
            fence="raise",
            patience=self.job.patience,
            end_after_patience=True,
            backend=self.job.backend,
            log_dir=logs,
            apart=True,
            environment=environment,
            directory=directory,
        )
        return stack.enter_context(run)


class _Run(Protocol):
    """The processes of a probe."""

    @property
    def is_lost(self) -> bool: ...
    def poll(self) -> bool: ...
    def ended(self) -> _Ended: ...


@dataclass(frozen=True, slots=True)
class _Script:
    run: PlainRun
    logs: str

    @property
    def is_lost(self) -> bool:
        return self.run.is_lost

    def poll(self) -> bool:
        return self.run.run.done

    def ended(self) -> _Ended:
        run = self.run.run.wait()
        failed = run.diagnosis.outcome != "ok" or run.exit_status
        last = _last_line(os.path.join(self.logs, "rank0.log")) if failed else ""
        return run.diagnosis, run.exit_status, last, run.recording


@dataclass(frozen=True, slots=True)
class _Command:
    run: CommandRun
    logs: str
    is_lost = False

    def poll(self) -> bool:
        return self.run.poll()

    def ended(self) -> _Ended:
        last = _last_line(os.path.join(self.logs, "output.log")) if self.run.status else ""
        if not self.run.status and self.run.run is None:
            last = "no process group was made: nothing was checked"
        recording = self.run.run.recording if self.run.run is not None else None
        return self.run.diagnosis, self.run.exit_status, last, recording


class Probing:
    """One probe that runs. Use it as a context manager: the end of it ends the processes.

    Args:
        prober: that has begun it.
        trying: the configuration.
    """

    def __init__(self, prober: Prober, trying: Trying) -> None:
        self._began = time.monotonic()
        self._prober, self._trying = prober, trying
        self._again = _AGAIN
        self._start()

    def _start(self) -> None:
        self._run: _Run | None = None
        self._failed = ""  # why it could not be started
        prober, trying = self._prober, self._trying
        self._directory = prober.directory
        with ExitStack() as stack:
            try:
                if trying.commit is not None and prober.repository is not None:
                    self._directory = stack.enter_context(prober.repository.checked_out(trying.commit))
                self._run = prober.started(trying, self._directory, stack)
            except DdpnbError as error:
                self._failed = error.what
            self._stack = stack.pop_all()

    def __enter__(self) -> Probing:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def poll(self) -> bool:
        """Whether it has ended, or is known never to end."""
        if self._run is None or not self._run.poll():
            return self._run is None
        if self._run.is_lost and self._again:
            self._again -= 1
            self.close()
            self._start()
            return False
        return True

    def wait(self) -> Ran:
        """How it went, once that is known. Its processes are ended."""
        while not self.poll():
            time.sleep(_TICK_S)
        try:
            if self._run is None:
                return Ran(reason=self._failed, seconds=self._seconds, ran=False)
            if self._run.is_lost:
                return Ran(reason="the process that forks the ranks died", seconds=self._seconds, ran=False)
            diagnosis, status, last, recording = self._run.ended()
        except DdpnbError as error:
            return Ran(reason=error.what, seconds=self._seconds, ran=False)
        finally:
            self.close()
        found = tuple(failures(diagnosis, status, self._directory))
        # What a program without a finding printed last is why it failed.
        reason = found[0].summary if found and (found[0].code or diagnosis.outcome == "hang") else last
        return Ran(found, finding_of(diagnosis, self._directory), reason, self._seconds, recording=recording)

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def close(self) -> None:
        """End its processes."""
        self._stack.close()


def finding_of(diagnosis: Diagnosis, directory: str) -> dict[str, Any] | None:
    """The first error as JSON, None if there is none; files below the folder in which the program ran are named from it."""
    first = next((one for one in diagnosis.to_json()["findings"] if one["severity"] == "error"), None)
    return json.loads(json.dumps(first).replace(os.path.join(directory, ""), ""))


def _last_line(path: str) -> str:
    """The last line of an output that says something."""
    with suppress(OSError), open(path, "rb") as file:
        file.seek(max(os.path.getsize(path) - _TAIL, 0))
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip()[:_LINE] if lines else ""
    return ""
