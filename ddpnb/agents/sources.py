"""What the tools look at: live jobs, commands that the server has started, and files, each by a name."""

from __future__ import annotations

import os
import threading

from ddpnb.agents.started import StartedCommand, StartedCommands
from ddpnb.errors import UsageError
from ddpnb.ranks.jobs.search import found_in, job_of
from ddpnb.recording import arguments
from ddpnb.recording.arguments import short
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording
from ddpnb.rules.diagnose import diagnose
from ddpnb.world.job import Job, attach
from ddpnb.world.loading import load

_LONGEST_S = 60.0  # that a tool waits: clients give up on calls that take minutes
_HINT = "The tool jobs lists what can be looked at here."


def wait_s(wait: float) -> float:
    """The seconds that a tool waits at most.

    Raises:
        UsageError: it is no number of seconds.
    """
    return min(arguments.seconds("wait", wait, least=0), _LONGEST_S)


class Sources:
    """Jobs stay attached between two questions: the second one is answered at once."""

    def __init__(self) -> None:
        self.started = StartedCommands()
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def live(self, name: str) -> Job:
        """The live job of this name: a folder, a process ID, or the name of a command that was started.

        Raises:
            UsageError: there is none, or it has ended.
        """
        command = self.started.get(name)
        if command is not None:
            target = command.target
            if target is None and command.state in ("ending", "ended"):
                raise UsageError(f"{name} has ended.", "diagnose and report still say what was recorded of it.")
            if target is None:
                raise UsageError(f"{name} has no ranks yet.", "Ask for its status again in a few seconds.")
            return self._attached(target)
        return self._attached(name)

    def recording(self, name: str) -> tuple[Recording, Diagnosis]:
        """What is known of a job or of a file, with its diagnosis.

        Raises:
            UsageError: no job and no file has this name, or nothing in the file is known.
        """
        command = self.started.get(name)
        if command is not None:
            return self._of_command(command)
        if self._is_file(name):
            found = load(name)
            return found, diagnose(found)
        job = self._attached(name)
        run = job.run
        known = run.recording
        return known if known is not None else job.snapshot(), run.diagnosis

    def is_starting(self, name: str) -> bool:
        """Whether it is a command that has no ranks yet."""
        command = self.started.get(name)
        return command is not None and command.state == "starting"

    def is_live(self, name: str) -> bool:
        """Whether ranks of this name may still do something."""
        command = self.started.get(name)
        return command.target is not None if command is not None else name in self._jobs

    def _of_command(self, command: StartedCommand) -> tuple[Recording, Diagnosis]:
        known = command.recording()
        if known is not None:
            return known, diagnose(known)
        job = self.live(command.name)
        return job.snapshot(), job.diagnosis

    def _attached(self, name: str) -> Job:
        with self._lock:
            if name in self._jobs:
                return self._jobs[name]
            if not name.isdecimal() and not os.path.isdir(name):
                raise UsageError(f"{short(name)} is neither a job nor a file.", _HINT)
            try:
                found = job_of(name)
            except UsageError as error:
                raise UsageError(error.what, _HINT) from None
            job = self._jobs.get(found.target) or attach(found)
            self._jobs[name] = self._jobs[found.target] = job
            return job

    def _is_file(self, name: str) -> bool:
        if name in self._jobs or name.isdecimal() or not os.path.exists(name):
            return False
        return not (os.path.isdir(name) and found_in(name))

    def close(self) -> None:
        """Detach from all jobs, which continue, and end the commands that were started."""
        self.started.close()
        for job in {id(job): job for job in self._jobs.values()}.values():
            job.close()
