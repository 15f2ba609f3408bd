"""A launch command of the user's, with the recorder in the environment of all that it starts."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import IO

import psutil

from ddpnb.errors import UsageError
from ddpnb.ranks import descendants
from ddpnb.ranks.exit_reasons import cannot_start
from ddpnb.ranks.jobs.group_witness import GroupWitness, is_in_group
from ddpnb.ranks.jobs.injection import SITE
from ddpnb.ranks.jobs.job_processes import JobProcesses
from ddpnb.ranks.process_samples import command_of
from ddpnb.recording import protocol

_TERM_S = 5.0  # that a command has to end after SIGTERM
_REFUSED = "refused-"
_ENTRIES = 1 << 16  # of one folder
_IGNORING = "EIS"  # options of Python that ignore PYTHONPATH or sitecustomize

# Commands that start processes on other hosts.
_STARTERS = frozenset(
    {
        "srun", "mpiexec", "mpirun", "mpiexec.hydra", "orterun", "prun", "prterun", "jsrun", "aprun", "flux", "ibrun",
        "ssh", "pdsh", "clush", "horovodrun", "deepspeed",
    }
)  # fmt: skip
_NODES = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "PBS_NUM_NODES")  # of the allocation in which this process runs
_WORD = re.compile(r"[^\s;&|()'\"`$]+")


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """A process of the job that could be a rank and is not recorded."""

    pid: int
    command: str
    why: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command}) is not recorded: {self.why}"


def refusals(folder: str) -> list[Unrecorded]:
    """The processes in which the recorder could not start, as they say themselves in the folder of a job on their host."""
    found: list[Unrecorded] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in sorted(islice(entries, _ENTRIES), key=lambda entry: entry.name):
            pid = entry.name.removeprefix(_REFUSED)
            if pid != entry.name and pid.isdecimal() and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError), open(entry.path, encoding="utf-8", errors="replace") as file:
                    program, _, why = file.read(4096).partition("\n")
                    found.append(Unrecorded(int(pid), program, why.rstrip(".")))
    return found


class Command:
    """One command that runs, with its standard files.

    Args:
        command: program and arguments.
        folder: of the job.
        environment: from ``injection.injected``.
        output: ``subprocess.PIPE`` to read its standard output and error; None: they are those of this process.
        directory: in which it runs; None: that of this process.
        given_input: ``subprocess.DEVNULL``: it has no standard input; None: that of this process.

    Raises:
        UsageError: there is no such program, or it cannot be executed.
        LaunchError: the system refuses another process.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: str,
        environment: Mapping[str, str],
        output: int | None,
        directory: str | None = None,
        given_input: int | None = None,
    ) -> None:
        self.folder = folder
        try:
            stderr = subprocess.STDOUT if output is not None else None
            self._process = subprocess.Popen(
                command, env=environment, stdin=given_input, stdout=output, stderr=stderr, cwd=directory
            )
        except (FileNotFoundError, PermissionError, NotADirectoryError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            raise UsageError(
                f"cannot run {command[0]!r}: {reason}.", "Type the command as you would without ddpnb."
            ) from None
        except OSError as error:
            raise cannot_start(error) from None
        self._witness = GroupWitness()

    @property
    def pid(self) -> int:
        """Its process ID."""
        return self._process.pid

    @property
    def output(self) -> IO[bytes] | None:
        """What it writes, if that was asked for."""
        return self._process.stdout

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs; negative: the signal that killed it."""
        return self._process.poll()

    def starts(self) -> list[str]:
        """The folders of the process groups that its processes have started, oldest first."""
        made: list[tuple[int, str]] = []
        for entry in self._entries():
            with contextlib.suppress(OSError):
                if entry.is_dir() and "-" in entry.name:
                    made.append((entry.stat().st_ctime_ns, entry.path))
        return [path for _, path in sorted(made)]

    def _entries(self) -> list[os.DirEntry[str]]:
        """What is in the folder; nothing if a program has removed it."""
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            return list(entries)
        return []

    def unrecorded(self) -> list[Unrecorded]:
        """What is known of processes that are not recorded, and why."""
        found = [*refusals(self.folder), *self._not_reached()]
        return list({one.pid: one for one in reversed(found)}.values())

    def _not_reached(self) -> list[Unrecorded]:
        """Python processes below the command that did not load what starts the recorder."""
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self.pid)
            reasons = [(process, _why_not(process)) for process in (root, *root.children(recursive=True))]
            return [Unrecorded(process.pid, command_of(process.pid), why) for process, why in reasons if why]
        return []

    def leaves_processes(self) -> bool:
        """Whether processes of the job run that are not the command itself."""
        return any(pid != self.pid for pid in descendants.of_folder(self.folder))

    def forward(self, number: int, ranks: Iterable[int]) -> None:
        """Give a signal that this process got to the command, or to its ranks once it has ended.

        Those to which it has come already, since it was sent to their process group, do not get it again.

        Args:
            number: of the signal.
            ranks: the process IDs of those that live.
        """
        came_to_all = self._witness.came_to_all(number)
        if self.status is None:
            if not (came_to_all and is_in_group(self.pid)):
                self._process.send_signal(number)
            return
        for pid in ranks:
            if not (came_to_all and is_in_group(pid)):
                with contextlib.suppress(OSError):
                    os.kill(pid, number)

    def end(self, *, at_once: bool = False) -> None:
        """End the command and everything that it has started: first politely, then by force.

        Args:
            at_once: by force.

        Raises:
            WorldError: the kernel does not end a process.
        """
        self.close()
        family: list[psutil.Process] = []
        if self.status is None:
            family = descendants.family([self.pid])  # some may outlive it, in an environment that does not tell
        if self.status is None and not at_once:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_TERM_S)
        left = descendants.end([self.pid] if self.status is None else (), self.folder, also=family)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(descendants.SOON_S)
        descendants.check_ended(left, "job")

    def close(self) -> None:
        """Pass no signals on any more."""
        self._witness.close()


def _why_not(process: psutil.Process) -> str:
    """Why a process that has torch loaded cannot become a rank; empty if it can, or is not Python."""
    try:
        arguments, environment = process.cmdline(), process.environ()
        if protocol.AGENT in environment:  # it is ours
            return ""
        if not arguments or "python" not in os.path.basename(arguments[0]):
            return ""
        options = [part for part in arguments[1:4] if part.startswith("-") and not part.startswith("--")]
        ignoring = [letter for part in options[:1] for letter in part[1:] if letter in _IGNORING]
        if ignoring:
            return f"python -{ignoring[0]} ignores PYTHONPATH, by which the recorder comes; run it without"
        if protocol.JOB not in environment:
            return f"its environment has been rewritten: {protocol.JOB} is missing; pass the environment on"
        if SITE not in environment.get("PYTHONPATH", "").split(os.pathsep):
            return "its PYTHONPATH has been replaced; add to it instead"
    except (psutil.Error, OSError):
        pass  # it has ended, or belongs to another user
    return ""


def local_size(processes: JobProcesses) -> int:
    """How many ranks of this process group are expected on this host."""
    return max((known.local_size or known.size for known in processes.found().values()), default=0)


def may_leave_host(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a command may start ranks on other hosts than this one.

    Args:
        command: program and arguments, which may be a line for a shell.
        environment: in which it runs.

    Example:
        >>> may_leave_host(["time", "srun", "python", "train.py"], {})
        True
        >>> may_leave_host(["python", "train.py", "--model", "flux"], {})
        False
    """
    several = any(environment.get(name, "").isdecimal() and int(environment[name]) > 1 for name in _NODES)
    return several or any(os.path.basename(word) in _STARTERS for word in _before_script(command))


def _before_script(command: Sequence[str]) -> Iterator[str]:
    """The words of a command up to an interpreter or a script, whose arguments are its own; all words of a line for a shell."""
    for part in command:
        words = _WORD.findall(part)
        yield from words
        if words == [part] and (os.path.basename(part).startswith("python") or part.endswith(".py")):
            return
