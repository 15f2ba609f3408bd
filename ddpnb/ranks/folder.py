"""The folders of a world: one in memory for the memory-mapped files of the ranks, one for their output.

The first is in ``/dev/shm`` (or the folder that DDPNB_SHM names) if there is enough space, the second below TMPDIR. In
both places the worlds of a user share a folder of that user.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator

from ddpnb.errors import LaunchError
from ddpnb.ranks.locked_folder import LockedFolder, remove_path, user_folders
from ddpnb.recorder.files import shared_files
from ddpnb.recording import blackbox, samples

_SHARED = "DDPNB_SHM"
_USUAL = "/dev/shm"
# What is left to the data loaders of the training, which need shared memory themselves.
_SPARE = 256 << 20
_PER_RANK = blackbox.BOX_SIZE + samples.FILE_SIZE
_OF_RUN = re.compile(r"run(\d{1,12})(?:-rank\d+\.json(?:\.part)?)?")  # logs, endings
_SHARED_OF_RUN = re.compile(
    r"rank\d+-run(\d{1,12})-model\d+\.json(?:\.part)?|fence-(\d{1,12})-\w+|rank\d+\.box\.child(\d{1,12})"
)


class Folders:
    """The folders of one world; only the process that made them changes them.

    Args:
        size: number of ranks.

    Raises:
        LaunchError: there is no room, or no place that belongs to this user alone.
    """

    def __init__(self, size: int) -> None:
        self._pid = os.getpid()
        self._made: list[LockedFolder] = []
        try:
            self.memory = self._with_room(size)
            try:
                output = LockedFolder(tempfile.gettempdir())
                self._made.append(output)
                self.output = output.path
            except OSError:
                self.output = self.memory
        except BaseException:
            self.remove()
            raise

    def _with_room(self, size: int) -> str:
        shared = _shared_place()
        troubles: dict[str, str] = {}
        limited = False  # by the shell, not by the place
        for base, spare in ((shared, _SPARE), (None, 0), (shared, 0)):
            try:
                base = base or tempfile.gettempdir()
                free = shutil.disk_usage(base).free
                if free < size * _PER_RANK + spare:
                    raise OSError(errno.ENOSPC, f"{free >> 20} MB are free", base)
                folder = LockedFolder(base)
                self._made.append(folder)
                self.memory = folder.path
                with self._allocated(range(size)) as adopt:
                    adopt()
            except OSError as error:
                troubles[base or "TMPDIR"] = _reason(error)
                limited = error.errno == errno.EFBIG
                self.remove()
            else:
                return folder.path
        reasons = "; ".join(f"{base}: {trouble}" for base, trouble in troubles.items())
        raise LaunchError(
            f"no folder has enough space for the shared files of {size} ranks ({size * _PER_RANK >> 20} MB): {reasons}.",
            "This shell limits the size of files: ulimit -f unlimited."
            if limited
            else "Give a container more shared memory (docker run --shm-size=2g), or set TMPDIR to a folder of yours with "
            "enough space.",
        )

    @contextlib.contextmanager
    def _allocated(self, ranks: Iterable[int]) -> Iterator[Callable[[], None]]:
        """New files for these ranks, beside those that they have; yields what puts them in place.

        All are allocated or none; those that were not put in place are removed in the end.

        Raises:
            OSError: there is no room for them.
        """
        sizes = {
            os.path.join(self.memory, f"rank{rank}.{kind}"): size
            for rank in ranks
            for kind, size in (("box", blackbox.BOX_SIZE), ("samples", samples.FILE_SIZE))
        }

        waiting = list(sizes)

        def adopt() -> None:
            while waiting:
                shared_files.adopt(waiting[-1])
                waiting.pop()

        try:
            for path, size in sizes.items():
                os.close(shared_files.prepare(path, size))
            yield adopt
        finally:
            for path in waiting:
                shared_files.discard(path)

    @contextlib.contextmanager
    def reserved(self, ranks: Iterable[int]) -> Iterator[Callable[[], None]]:
        """Fresh files for new processes of these ranks; yields what puts them in place, once the old ones have ended.

        Who reads the files of earlier processes keeps them.

        Raises:
            LaunchError: there is no room for them.
        """
        with contextlib.ExitStack() as stack:
            try:
                adopt = stack.enter_context(self._allocated(ranks))
            except OSError as error:
                raise LaunchError(
                    f"no space for the shared files of another process in {self.memory}: {_reason(error)}.",
                    f"No rank was changed. Free {_PER_RANK >> 20} MB there for each rank, and try again.",
                ) from None
            yield adopt

    def log_dir(self, run: int) -> str:
        """Where the ranks' output of a run lies."""
        return os.path.join(self.output, f"run{run}")

    def ending(self, run: int, rank: int) -> str:
        """The file in which a rank says how a run ended."""
        return os.path.join(self.output, f"run{run}-rank{rank}.json")

    def forget(self, run: int) -> None:
        """Remove the files of a run that no rank is in any more."""
        if os.getpid() != self._pid:  # a forked child has dropped its copy of the run
            return
        for folder, pattern in ((self.output, _OF_RUN), (self.memory, _SHARED_OF_RUN)):
            with contextlib.suppress(OSError):
                for name in os.listdir(folder):
                    match = pattern.fullmatch(name)
                    if match and int(next(filter(None, match.groups()))) == run:
                        remove_path(os.path.join(folder, name))

    def remove(self) -> None:
        """Remove both folders."""
        if os.getpid() == self._pid:
            while self._made:
                self._made[-1].remove()
                self._made.pop()


def places() -> list[str]:
    """Where the folders of this user's worlds and jobs are."""
    bases = {os.environ.get(_SHARED) or _USUAL, _USUAL, tempfile.gettempdir()}
    return [path for base in sorted(bases) for path in user_folders(base)]


def _shared_place() -> str:
    """Where files in memory lie; not relative to the working directory, which ranks change.

    Raises:
        LaunchError: the place that was asked for does not exist.
    """
    wanted = os.environ.get(_SHARED)
    if not wanted:
        return _USUAL
    if not os.path.isdir(wanted):
        raise LaunchError(
            f"{_SHARED}={wanted} is not a folder.", f"Create it, or unset {_SHARED} to use {_USUAL} or TMPDIR."
        )
    return os.path.abspath(wanted)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
