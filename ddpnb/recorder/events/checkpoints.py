"""Numbered checkpoints in a script: a line of each rank, and a record in its black box if it has one.

Standard library only: a script calls it before it imports torch, and where nothing is recorded.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpnb.recorder.files.blackbox import BlackBox

MAX_NAME = 200  # characters
_LINES = 10_000  # with checkpoints, whose visits are counted
_EARLY = 64  # checkpoints that are kept until the recorder starts: it may do so in init_process_group


def checkpoint(name: str) -> None:
    """Mark a place in a training script: print a numbered line on this rank, and record it.

    The line has the time, the seconds since the process began (on the ranks of a World: since the run began), the rank
    and the world size, the local rank and the process ID. Each call gets the next number of its rank, from 1, also in a
    loop. With ``ddpnb run``, and on the ranks of a World, the checkpoint and its line are recorded: the board shows the
    last one of each rank, and the diagnosis of a hang says after which one each rank stopped. Of each rank the first
    64 and the last 192 are kept.

    Anywhere else (``torchrun train.py``, ``python train.py``) it prints the same line, if the environment of the job has
    ddpnb; under ``ddpnb run -- COMMAND`` it need not. Before the process group exists, the rank is known from ``RANK``,
    ``WORLD_SIZE`` and ``LOCAL_RANK``; what is not known is shown as ``?``. A process that a rank has started counts its own.
    A call costs microseconds, communicates with no other rank, and never raises an exception.

    Args:
        name: what has been reached. Anything else than a text is shown as ``str()`` shows it; 200 characters are kept,
            and control characters are escaped.

    Example:
        >>> ddpnb.checkpoint("Trainer ready")
        [14:03:22.123][+1.204s][R0/2][LR0][PID 1234] CHECKPOINT 3: Trainer ready
    """
    with suppress(Exception):
        _pass(_text(name), sys._getframe(1))


checkpoint._torchdynamo_disable = True  # type: ignore[attr-defined]  # torch.compile does not look inside


class _Counter:
    """The checkpoints of this process, or of one run on an engine."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Count from 1."""
        self.lock = threading.RLock()  # a signal handler may pass a checkpoint inside of another
        self.numbers = count(1)
        self.visits: dict[tuple[str, int], int] = {}
        self.run_began = 0.0  # 0: it counts since the process began
        self.process_began = 0.0  # 0: not known yet
        self.clock: tuple[int, str] = (0, "")  # the last second that was shown, and its text
        self.box: BlackBox | None = None
        self.early: list[Callable[[BlackBox], None]] = []


_counter = _Counter()
# A forked process counts its own; a thread of the parent may have held the lock.
os.register_at_fork(after_in_child=_counter.begin)


def record_in(box: BlackBox) -> None:
    """From here on checkpoints are recorded, and so are those that this process has passed before."""
    with _counter.lock:
        _counter.box = box
        for record in _counter.early:
            record(box)
        _counter.early.clear()


def new_run() -> None:
    """A run begins in a process that has several: its checkpoints are numbered from 1."""
    with _counter.lock:
        _counter.numbers, _counter.run_began = count(1), time.monotonic()
        _counter.visits.clear()


def _pass(name: str, caller: FrameType) -> None:
    counter = _counter
    place = caller.f_code.co_filename, caller.f_lineno, caller.f_code.co_name
    with counter.lock:
        number, now, visit = next(counter.numbers), time.monotonic_ns(), counter.visits.get(place[:2], 0) + 1
        if visit > 1 or len(counter.visits) < _LINES:
            counter.visits[place[:2]] = visit
        if counter.box is not None:
            counter.box.checkpoint(number, name, place, visit, now)
        elif len(counter.early) < _EARLY:
            counter.early.append(lambda box: box.checkpoint(number, name, place, visit, now))
    _print(f"{_head()} CHECKPOINT {number}: {name}\n")


def _text(name: object) -> str:
    try:
        text = str(name)[:MAX_NAME]
    except Exception as error:
        text = f"<{type(name).__name__}: str() raised {type(error).__name__}>"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)[:MAX_NAME]


def _head() -> str:
    second, milliseconds = divmod(time.time_ns() // 1_000_000, 1000)
    last, clock = _counter.clock
    if second != last:
        clock = time.strftime("%H:%M:%S", time.localtime(second))
        _counter.clock = second, clock
    rank, size, local = _identity()
    return f"[{clock}.{milliseconds:03d}][+{_elapsed():.3f}s][R{rank}/{size}][LR{local}][PID {os.getpid()}]"


def _elapsed() -> float:
    counter = _counter
    if not counter.run_began and not counter.process_began:
        counter.process_began = _process_began()
    return time.monotonic() - (counter.run_began or counter.process_began)


def _process_began() -> float:
    """When this process began, on the monotonic clock; where the host does not tell: now."""
    now = time.monotonic()
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b") ")[2].split()[19])
        since_boot = ticks / os.sysconf("SC_CLK_TCK")
        return min(now, now - (time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot))
    except (OSError, ValueError, IndexError, AttributeError):
        return now


def _identity() -> tuple[int | str, int | str, int | str]:
    """Rank, world size and local rank: of the process group, else of the environment; ``?``: not known."""
    local = _number("LOCAL_RANK")
    group: Any = sys.modules.get("torch.distributed")
    with suppress(Exception):
        if group is not None and group.is_initialized():
            return group.get_rank(), group.get_world_size(), local
    rank, size = _number("RANK"), _number("WORLD_SIZE")
    if rank == "?" and size == "?" and local == "?" and _is_alone():
        return 0, 1, 0
    return rank, size, local


def _number(variable: str) -> int | str:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() and len(text) < 10 else "?"


def _is_alone() -> bool:
    """Whether nothing suggests that another process started this one as a rank, as ``mp.spawn`` and ``srun`` do."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        return False
    return not any(name in os.environ for name in ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"))


def _print(line: str) -> None:
    """Write a line at once: lines of several ranks in one terminal or file do not mix."""
    stream = sys.stdout
    if stream is None:  # pyright: ignore[reportUnnecessaryComparison]  # pythonw, or closed by the script
        return
    try:
        stream.write(line)
    except UnicodeEncodeError:
        stream.write(line.encode("ascii", "backslashreplace").decode())
    stream.flush()
