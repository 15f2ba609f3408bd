"""The flight recorders of running ranks: asked for their dumps through the pipes that torch makes for it.

With ``TORCH_NCCL_DEBUG_INFO_PIPE_FILE``, each rank of NCCL reads a named pipe, and writes a dump when it gets a line with 1.
Not yet run with NCCL: written after the source of torch 2.9 to 2.13.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass

_PIPES = ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DEBUG_INFO_PIPE_FILE")
_FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_USUAL = ("torch/comm_lib_trace_rank_", "/tmp/nccl_trace_rank_")  # below the folder for caches; before torch 2.7
_DUMP_S, _LOOK_S, _STILL_S = 10.0, 0.1, 0.5
_CLOCK_S = 0.05  # by which the time of a file may be behind


@dataclass(frozen=True, slots=True)
class FlightRecorder:
    """That of one rank.

    Args:
        rank: the global rank.
        environment: of its process.
        directory: in which it runs.
        began: when it was started, in seconds since the epoch: older dumps are of another process.
    """

    rank: int
    environment: Mapping[str, str]
    directory: str
    began: float

    def ask(self) -> bool:
        """Ask for a dump, which takes a moment; returns whether anybody reads the pipe."""
        stem = next(filter(None, (self.environment.get(name) for name in _PIPES)), "")
        if not stem:
            return False
        try:
            pipe = os.open(self._path(f"{stem}{self.rank}.pipe"), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # there is none, or nobody reads it
            return False
        try:
            return stat.S_ISFIFO(os.fstat(pipe).st_mode) and os.write(pipe, b"1\n") == 2
        except OSError:
            return False
        finally:
            os.close(pipe)

    def dump(self, since: float = 0.0) -> str | None:
        """The newest dump of this process; None: there is none from this time on."""
        found = [(at, path) for path in self._dumps() if (at := _written_at(path)) >= max(self.began, since) - _CLOCK_S]
        return max(found)[1] if found else None

    def _dumps(self) -> list[str]:
        stem = next(filter(None, (self.environment.get(name) for name in _FILES)), "")
        if stem:
            return [self._path(f"{stem}{self.rank}")]
        home = self.environment.get("HOME", "")
        cache = self.environment.get("XDG_CACHE_HOME") or (os.path.join(home, ".cache") if home else "/tmp")
        return [os.path.join(cache, f"{stem}{self.rank}") for stem in _USUAL]

    def _path(self, given: str) -> str:
        return os.path.join(self.directory, given)


def dumps(recorders: list[FlightRecorder]) -> dict[int, str]:
    """Ask all of them for dumps; returns the files, by rank: the new ones, and older ones of ranks that do not write any.

    It takes some seconds where a rank does not write what it was asked for.
    """
    began = time.time()
    asked = [one for one in recorders if one.ask()]
    deadline = time.monotonic() + _DUMP_S
    while any(not _is_whole(one.dump(began)) for one in asked) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return {one.rank: path for one in recorders if (path := one.dump()) is not None}


def _is_whole(path: str | None) -> bool:
    """Whether a dump is written: no more has come for a moment."""
    return path is not None and os.path.getsize(path) > 0 and time.time() - _written_at(path) > _STILL_S


def _written_at(path: str) -> float:
    try:
        found = os.stat(path)
    except OSError:
        return -1.0
    return found.st_mtime if stat.S_ISREG(found.st_mode) else -1.0
