"""The folder of a world: in memory where possible (the boxes are written at every call), swept when left behind."""

from __future__ import annotations

import os
import shutil
import tempfile

from ddpnb.errors import LaunchError

_PREFIX = "ddpnb-"


def make_folder() -> str:
    """A new folder for one world.

    Raises:
        LaunchError: there is no room for it.
    """
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) and _free("/dev/shm") > (256 << 20) else tempfile.gettempdir()
    _sweep(base)
    try:
        folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=base)
    except OSError as error:
        raise LaunchError(
            f"no folder for the world in {base}: {error.strerror}.", "Set TMPDIR to a writable folder."
        ) from None
    return folder


def _free(path: str) -> int:
    return shutil.disk_usage(path).free


def _sweep(base: str) -> None:
    """Remove the folders of launchers that were killed before they could."""
    for name in os.listdir(base):
        owner = name.removeprefix(_PREFIX).split("-")[0]
        if name.startswith(_PREFIX) and owner.isdigit() and not _exists(int(owner)):
            shutil.rmtree(os.path.join(base, name), ignore_errors=True)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
