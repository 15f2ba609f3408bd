"""A stand-in for a GPU and NCCL: what makes them different for ddpnb, on a machine that has neither.

``device.py`` is a device of its own (PrivateUse1, in Python alone): its one thread is the stream, and the host runs ahead of it.
``backend.py`` is a c10d back end for it: a call returns at once, ``wait()`` does not block the host, a watchdog ends the
process, and only ``abort()`` frees a stream that waits for another rank.

``install()`` makes both known to torch; ``BACKEND`` is then the name of the back end, ``DEVICE`` that of the device. Processes with
the ``variables()`` install it when they import torch, as one does that has the package of another vendor's device.
"""

from __future__ import annotations

import os
from pathlib import Path

BACKEND = "nccl_like"
DEVICE = "npu"
CHOSEN = "DDPNB_TEST_DEVICE"  # environment variable: programs of ``tests/gpu`` run on the device that it names
FOLDER = "DDPNB_TEST_FOLDER"  # environment variable: where the members of a group exchange files


def install() -> None:
    """Make the device and the back end known to torch in this process; once is enough."""
    from tests.nccl_like import backend, device

    device.install(DEVICE)
    backend.install(BACKEND, DEVICE)


def variables(folder: Path) -> dict[str, str]:
    """The environment of processes that have the device.

    Args:
        folder: where files that this needs are made.
    """
    package = folder / "nccl_like-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: nccl-like\nVersion: 1\n")
    (package / "entry_points.txt").write_text(f"[torch.backends]\n{DEVICE} = tests.nccl_like:install\n")
    paths = [str(folder), str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths), CHOSEN: f"{DEVICE}:0", FOLDER: str(folder)}
