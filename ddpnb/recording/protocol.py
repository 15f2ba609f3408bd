"""What a rank and its launcher agree on: names of variables and messages, the files of a job.

Standard library only, so that a launcher can import it without torch.

The folder of a job (``DDPNB_JOB``) has one folder for each start of a process group by a launcher, whose name comes from
the address of its store; ranks that ddpnb itself has started use the folder of the job. There each rank has
``rank0.box``, ``rank0.samples`` and ``rank0.path`` (``model``), ``rank0.json`` (who it is), ``rank0.status`` (how it ended),
``rank0.end.json`` (the same with all frames and variables, if there was room), ``rank0.crash`` (what faulthandler wrote) and
``rank0.sock`` (its control channel) and ``rank0.key`` (what a request there begins with). Who started the job takes the connections of ranks that have ended at ``connections.sock``.

On another host than its launcher a job has a folder of its own (``inject.other_host``), which an agent there makes and
reads; it has ``joined-PID`` for each process that uses it, and is removed when the launcher knows how all have ended. A
start then also has ``rank0.sent`` once the launcher knows how that rank ended.

Of a job that is only recorded (``DDPNB_RECORD``), ranks may run on several hosts that share the folder of the job: each
host has a folder of its own in it, with those of the starts. There a rank also has ``rank0.stacks.json`` (``heartbeat``).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import sys
import time
from collections.abc import Mapping

from ddpnb.recording.files import make_folder, private

FOLDER, PARENT, DEVICE = "DDPNB_FOLDER", "DDPNB_PARENT", "DDPNB_DEVICE"
#: that a release sends to the main thread of a rank; a training uses no real-time signals
RELEASE_SIGNAL = signal.SIGRTMAX - 3 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2
VALUES = 1 << 20  # elements of a tensor that are sent at most, to say by how much it differs
NAMESPACE = "ddpnb namespace"  # in the pickle of a notebook's function: the variables of the cells on the rank
BACKEND = "DDPNB_BACKEND"  # the backend that a script gets, whichever it asks for
KEEP = "keep"  # a fence of jobs that are kept: a rank stays in the call that does not match
JOB, FENCE = "DDPNB_JOB", "DDPNB_FENCE"  # of a job of plain processes: its folder, what its fence does
LOOKS = (
    "DDPNB_LOOKS"  # LOW..HIGH: between these numbers of optimizer steps the replica watch looks at all tensors in each
)
AGENT = "DDPNB_AGENT"  # of the process that acts for a launcher on another host: the name of that host
CLOCK = "DDPNB_CLOCK_NS"  # what a rank adds to its monotonic clock, which gives that of its launcher's host
LINES = "DDPNB_LINES"  # 0: the path is not recorded
RECORD = "DDPNB_RECORD"  # 1: nothing but recording, on any number of hosts
HOSTS = "DDPNB_HOSTS"  # how ranks on other hosts reach the launcher that watches them: see ``inject.other_host``
START = "DDPNB_START"  # in a process that ddpnb starts as a rank: the folder of its ranks
RANK_OF = "DDPNB_RANK_OF"  # in such a process later: its process ID and that folder, for a program that replaces itself (exec)
FORK = "DDPNB_FORK"  # the default of the argument fork of launch()
# Names, or their beginnings, of the variables that matter to a distributed run:
ENVIRONMENT = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_", "OMP_", "MKL_", "CUDA_", "TORCH_",
    "PYTORCH_", "NCCL_", "GLOO_", "KMP_", "HSA_", "ROCR_", "HIP_",
)  # fmt: skip
LONGEST_REQUEST, LONGEST_ANSWER = 4 << 20, 64 << 20  # bytes on the control channel of a rank
KEY_SIZE = 32  # bytes of the secret with which each request there begins
_STARTS = 1000  # of process groups at one address
_CLAIM = ".claim"
JOINED = "joined-"
KEEPER = "connections.sock"
_TOGETHER_S = 10.0  # within which the ranks of one start become ranks


def displays_of(log: str) -> str:
    """The file with what a cell displays (``recorder.process.displays``), beside the log of the rank."""
    return f"{log.removesuffix('.log')}.displays"


# -- plain processes


def address_of_environment() -> str:
    """The address of the store, with what torchrun changes when it restarts the ranks."""
    names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
    host, port, *restart = (os.environ.get(name, "") for name in names)
    return ":".join([host, port, *filter(None, restart)])


def start_folder(job: str, address: str, start: int = 0) -> str:
    """The folder of the start of a process group at this address, counted from 0."""
    return os.path.join(job, f"{hashlib.blake2b(address.encode(), digest_size=6).hexdigest()}-{start}")


def host() -> str:
    """The name of this host."""
    return os.uname().nodename


def place() -> str:
    """Where process IDs mean what they mean here: the host since it was started, and the namespace of this process.

    Without /proc it is the host alone.
    """
    found = [host(), boot()]
    with contextlib.suppress(OSError):
        found.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(filter(None, found))


def boot() -> str:
    """What the kernel of this host calls the time since it was started; empty without /proc."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read(64).strip()
    except OSError:
        return ""


def job_folder(environment: Mapping[str, str]) -> str:
    """The folder of the job that a process with this environment writes to; empty if it belongs to none."""
    job = environment.get(JOB, "")
    return os.path.join(job, host_folder(host())) if job and environment.get(RECORD) else job


def key_file(folder: str, rank: int) -> str:
    """The file with the secret of the control channel of a rank."""
    return os.path.join(folder, f"rank{rank}.key")


def exit_file(job: str, pid: int) -> str:
    """The file in the folder of a job with the exit status of a process, as the one that started it has written it."""
    return os.path.join(job, f"exit-{pid}")


def raised_file(job: str, pid: int) -> str:
    """The file in the folder of a job with what a process has raised, as the one that started it has written it."""
    return os.path.join(job, f"raised-{pid}")


def host_folder(name: str) -> str:
    """The name of the folder of a host, in that of a job which is only recorded."""
    return f"host-{re.sub('[^A-Za-z0-9._-]', '_', name)[:100]}"


def claim(job: str, address: str, rank: int) -> str:
    """The folder in which this process is ``rank``: that of the first start that has no such rank and is not over.

    Raises:
        OSError: the folder cannot be written.
    """
    for start in range(_STARTS):
        folder = start_folder(job, address, start)
        make_folder(folder)
        if _is_over(folder):
            continue
        path, mine = os.path.join(folder, f"rank{rank}"), f"{os.getpid()} {started(os.getpid())}"
        try:
            with open(path, "x", opener=private) as file:
                file.write(mine)
        except FileExistsError:
            with open(path) as file:
                if file.read(40) != mine:  # else this program has replaced (exec) that one
                    continue
        open(os.path.join(folder, f"{os.getpid()}{_CLAIM}"), "w", opener=private).close()
        return folder
    raise OSError("too many process groups at one address")


def _is_over(folder: str) -> bool:
    """Whether a rank of this start has ended that began some time ago: who comes now belongs to another start."""
    claims = [entry for entry in os.scandir(folder) if entry.name.endswith(_CLAIM)]
    return any(
        time.time() - entry.stat().st_mtime > _TOGETHER_S and not lives(entry.name.removesuffix(_CLAIM))
        for entry in claims
    )


def started(pid: int | str) -> int:
    """When a process began, in the kernel's ticks; 0: not known. A process that got the number of another has another time."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b") ")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def lives(pid: str) -> bool:
    """Whether there is a process with this number that has not ended."""
    if not pid:
        return False
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] not in b"ZX"
    except OSError:
        return not os.path.isdir("/proc/self") and exists(int(pid))


def sees_processes() -> bool:
    """Whether this process sees more of others than that they exist: not on a Linux without /proc."""
    return sys.platform != "linux" or os.path.isdir("/proc/self")


def exists(pid: int) -> bool:
    """Whether there is a process with this number, or one that nobody has waited for yet: all that is known without /proc."""
    if pid <= 0:  # groups of processes
        return False
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


class within:  # noqa: N801 (used like a function)
    """Inside, a short path to a folder, whose own may be too long for the name of a socket (108 bytes)."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._fd = -1

    def __enter__(self) -> str:
        if len(os.fsencode(self._folder)) < 80 or not os.path.isdir("/proc/self/fd"):
            return self._folder
        self._fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._fd}"

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
