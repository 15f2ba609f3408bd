"""Finds jobs that were started without ``ddpnb run``: their ranks are known by what the launcher put into their environment."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import psutil

from ddpnb.errors import UsageError
from ddpnb.ranks.jobs.found_job import FoundJob
from ddpnb.ranks.process_samples import all_processes
from ddpnb.ranks.py_spy import py_spy_stacks
from ddpnb.recording import protocol
from ddpnb.texts import shell_word

# What tells two ranks, or two jobs, apart. A process that a rank starts inherits all of it.
_RANK = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
_LARGEST = 1 << 16
_LAUNCHERS = ("torchrun", "accelerate", "lightning", "fabric")
_LISTED = 8  # processes in a message
_LIST_S = 1.0  # for the stack of each


@dataclass
class _Process:
    """A process with a rank in its environment."""

    pid: int
    parent: int
    environment: dict[str, str]
    below: list[_Process] = field(default_factory=list["_Process"])

    @property
    def name(self) -> tuple[str, ...]:
        return tuple(self.environment.get(name, "") for name in _RANK)

    @property
    def rank(self) -> int:
        return int(self.environment["RANK"])

    @property
    def size(self) -> int:
        return int(self.environment["WORLD_SIZE"])

    def number(self, variable: str) -> int:
        value = self.environment.get(variable, "")
        return int(value) if value.isdecimal() else -1

    def family(self) -> Iterator[_Process]:
        yield self
        for process in self.below:
            yield from process.family()


def unrecorded_jobs() -> list[FoundJob]:
    """The jobs on this host, as far as this user may see them, in whose ranks no recorder runs."""
    processes = _with_rank()
    heads: list[_Process] = []
    for process in processes.values():
        parent = processes.get(process.parent)
        if parent is not None:
            parent.below.append(process)
        if parent is None or parent.name != process.name:
            heads.append(process)
    ranks = [rank for head in heads if not _launches(head) and (rank := _python_in(head)) is not None]
    by_address: dict[object, list[_Process]] = defaultdict(list)
    for rank in ranks:
        address = rank.name[3:], rank.size
        by_address[address if rank.environment.get("MASTER_ADDR") else (address, rank.parent)].append(rank)
    return [job for members in by_address.values() for job in _jobs(members)]


def _with_rank() -> dict[int, _Process]:
    """The processes that have a rank in their environment, and are none of ddpnb."""
    found: dict[int, _Process] = {}
    for process in all_processes():
        try:
            environment = process.environ()
            valid = all(environment.get(name, "").isdecimal() for name in ("RANK", "WORLD_SIZE"))
            if valid and protocol.FOLDER not in environment:
                found[process.pid] = _Process(process.pid, process.ppid(), environment)
        except (psutil.Error, OSError):  # it has ended, or belongs to another user
            continue
    return {pid: process for pid, process in found.items() if process.rank < process.size <= _LARGEST}


def _launches(head: _Process) -> bool:
    """Whether this is a launcher with the RANK of its node, as in the pods of a cluster: the ranks below have others."""
    return head.number("LOCAL_RANK") < 0 and any(process.name != head.name for process in head.family())


def _python_in(head: _Process) -> _Process | None:
    """The topmost Python process of a rank, which a shell or another program may have started."""
    level = [head]
    while level:
        pythons = [process for process in level if _is_python(process.pid)]
        if pythons:
            return max(pythons, key=lambda process: _memory(process.pid))
        level = [process for above in level for process in above.below]
    return None


def _is_python(pid: int) -> bool:
    try:
        return os.path.basename(psutil.Process(pid).exe()).startswith(("python", "pypy"))
    except (psutil.Error, OSError):
        return False


def _memory(pid: int) -> int:
    try:
        return psutil.Process(pid).memory_info().rss
    except (psutil.Error, OSError):
        return 0


def _jobs(members: list[_Process]) -> list[FoundJob]:
    """The jobs of ranks that have one address: several where a rank occurs twice, as in containers."""
    if len({process.rank for process in members}) < len(members):
        by_parent: dict[int, list[_Process]] = defaultdict(list)
        for process in members:
            by_parent[process.parent].append(process)
        return [_job(siblings) for siblings in by_parent.values()]
    return [_job(members)]


def _job(members: list[_Process]) -> FoundJob:
    ranks = {process.rank: process for process in sorted(members, key=lambda process: process.rank)}
    first = ranks[min(ranks)]
    local: set[int] = set()
    for process in ranks.values():
        begin, count = process.rank - process.number("LOCAL_RANK"), process.number("LOCAL_WORLD_SIZE")
        if begin >= 0 and process.number("LOCAL_RANK") >= 0:
            local.update(range(begin, min(begin + max(0, count), first.size)))
    command, directory = _command(first.pid)
    parents = {process.parent for process in ranks.values()}
    launch = _launch(_command(parents.pop())[0]) if len(parents) == 1 else ()
    pids = {rank: process.pid for rank, process in ranks.items()}
    return FoundJob("", pids, first.size, command, directory, tuple(sorted(local - ranks.keys())), launch)


def _command(pid: int) -> tuple[tuple[str, ...], str]:
    try:
        process = psutil.Process(pid)
        return tuple(process.cmdline()), process.cwd()
    except (psutil.Error, OSError):
        return (), ""


def _launch(command: tuple[str, ...]) -> tuple[str, ...]:
    """A launch command as it is typed; empty if it is none that is known."""
    for place, part in enumerate(command[:2]):
        if os.path.basename(part) in _LAUNCHERS:
            return (os.path.basename(part), *command[place + 1 :])
    modules = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
    return command if any(module in command for module in modules) else ()


def unrecorded_jobs_of(pid: int) -> list[FoundJob]:
    """The jobs that this process launched or belongs to.

    Raises:
        UsageError: there is none; the message says what runs there, and how to start it.
    """
    process = psutil.Process(pid)
    below = {pid, *(child.pid for child in process.children(recursive=True))}
    found = unrecorded_jobs()
    jobs = [job for job in found if pid in job.ranks.values()]
    jobs = jobs or [job for job in found if below & {*job.ranks.values()}]
    if not jobs:  # a process that a rank has started
        above = {parent.pid for parent in process.parents()}
        jobs = [job for job in found if above & {*job.ranks.values()}]
    if not jobs:
        raise _no_job(pid, below)
    return jobs


def _no_job(pid: int, below: set[int]) -> UsageError:
    pythons = sorted(process for process in below if _is_python(process))
    what = f"process {pid} is part of no distributed job that can be recognised: "
    if not pythons:
        return UsageError(
            f"{what}it is no Python process, and has started none.",
            "ddpnb attach lists the jobs that run here; ps -ef shows the processes of a launcher.",
        )
    command = " ".join(_command(min(pythons))[0][1:2])
    lines = [f"{process}: {_place(process)}" for process in pythons[:_LISTED]]
    more = [f"and {len(pythons) - _LISTED} more"] if len(pythons) > _LISTED else []
    return UsageError(
        f"{what}no process there has RANK and WORLD_SIZE in the environment that it was started with.",
        "\n  ".join(
            [
                "mp.spawn and programs that start their own processes pass the rank on in other ways: which process is "
                f"which rank cannot be seen from outside. Start it with ddpnb run -- python {shell_word(command) if command else 'train.py'}",
                "The Python processes there:",
                *lines,
                *more,
            ]
        ),
    )


def _place(pid: int) -> str:
    """Where the main thread of a process is."""
    main = next((stack for stack in py_spy_stacks(pid, _LIST_S) if stack.main), None)
    if main is None or main.innermost is None:
        return "its stack cannot be read"
    user = main.innermost_user
    function = main.innermost.function
    return function if user is None or user is main.innermost else f"{function}, called at {user.site}"
