"""One probe of a bisection: a configuration of a script or a command runs in fresh processes, and ends."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from ddpnb.bisection.command import Trying
from ddpnb.bisection.failure import Failure, failures
from ddpnb.control.command_run import CommandRun
from ddpnb.control.plain_run import PlainRun
from ddpnb.control.run_requests import check_script
from ddpnb.control.worktrees import Repository
from ddpnb.errors import DdpnbError
from ddpnb.model.findings import Diagnosis
from ddpnb.model.recording import Recording
from ddpnb.processes import devices
from ddpnb.processes.environment import working_directory
from ddpnb.processes.jobs.spawned import Program

_TAIL = 4096  # bytes of output in which the last line is looked for
_LINE = 200
_Ended = tuple[Diagnosis, int, str, Recording | None]  # with the exit status and the last line of output


@dataclass(frozen=True, slots=True)
class Job:
    """What is the same for all probes.

    ``script``: the command is a script with arguments, and not a launch command. ``module``: it is a module. ``size``:
    number of ranks of a script. ``backend``, ``patience``, ``fork``: as for ``ddpnb run``.
    """

    script: bool = True
    module: bool = False
    size: int = 2
    backend: str | None = None
    patience: float = 10.0
    fork: bool = False


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

    def options(self, trying: Trying) -> list[str]:
        """The options of ``ddpnb run`` that make a probe's ranks."""
        job = self.job
        backend = trying.own.get("--backend", job.backend)
        common = [
            *(["--backend", backend] if backend else []),
            *(["--patience", f"{job.patience:g}"] if job.patience != Job().patience else []),
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
        """Run a configuration to its end, or until it is known that it never ends."""
        began = time.monotonic()
        try:
            with ExitStack() as stack:
                directory = self.directory
                if trying.commit is not None and self.repository is not None:
                    directory = stack.enter_context(self.repository.checked_out(trying.commit))
                diagnosis, status, last, recording = self._run(trying, directory, stack)
        except DdpnbError as error:
            return Ran(reason=error.what, seconds=time.monotonic() - began, ran=False)
        found = tuple(failures(diagnosis, status, directory))
        finding = finding_of(diagnosis, directory)
        # What a program without a finding printed last is why it failed.
        reason = found[0].summary if found and (found[0].code or diagnosis.outcome == "hang") else last
        return Ran(found, finding, reason, time.monotonic() - began, recording=recording)

    def _run(self, trying: Trying, directory: str, stack: ExitStack) -> _Ended:
        environment = {**os.environ, **{name: value for name, value in trying.environment.items() if value is not None}}
        for name, value in trying.environment.items():
            if value is None:
                environment.pop(name, None)
        logs = stack.enter_context(tempfile.TemporaryDirectory(prefix="ddpnb-bisect-", ignore_cleanup_errors=True))
        if self.job.script:
            return self._script(trying, directory, environment, logs)
        return self._command(trying, directory, environment, logs)

    def _script(self, trying: Trying, directory: str, environment: Mapping[str, str], logs: str) -> _Ended:
        script, *arguments = trying.command
        if not self.job.module:
            check_script(os.path.join(directory, script))
        size = int(trying.own.get("-n", self.job.size))
        plan = devices.plan(size, trying.own.get("--backend", self.job.backend))
        with PlainRun(
            plan,
            Program(script, tuple(arguments), self.job.module),
            fork=self.job.fork,
            fence="raise",
            patience=self.job.patience,
            log_dir=logs,
            stream=None,
            environment=environment,
            directory=directory,
        ) as started:
            run = started.run.wait()
            diagnosis = run.diagnosis
            failed = diagnosis.outcome != "ok" or run.exit_status
            last = _last_line(os.path.join(logs, "rank0.log")) if failed else ""
            return diagnosis, run.exit_status, last, run.recording

    def _command(self, trying: Trying, directory: str, environment: Mapping[str, str], logs: str) -> _Ended:
        with CommandRun(
            trying.command,
            fence="raise",
            patience=self.job.patience,
            backend=self.job.backend,
            log_dir=logs,
            apart=True,
            environment=environment,
            directory=directory,
        ) as started:
            started.wait()
            last = _last_line(os.path.join(logs, "output.log")) if started.status else ""
            if not started.status and started.run is None:
                last = "no process group was made: nothing was checked"
            recording = started.run.recording if started.run is not None else None
            return started.diagnosis, started.exit_status, last, recording


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
