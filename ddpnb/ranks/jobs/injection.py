"""The environment that starts the recorder in the processes of a job: see ``ddpnb.recorder.inject``."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ddpnb.recording import protocol

SITE = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "recorder", "inject", "site"
)


def injected(
    environment: Mapping[str, str], folder: str, fence: str, backend: str | None = None, *, only_record: bool = False
) -> dict[str, str]:
    """An environment with the recorder in it.

    Args:
        environment: to begin with.
        folder: of the job.
        fence: ``raise``, ``warn`` or ``off``.
        backend: that scripts get, whichever they ask for; None: the one they ask for.
        only_record: nobody watches the ranks, which may run on several hosts.
    """
    before = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry != SITE]
    path = [SITE, *before] if environment.get("PYTHONPATH") else [SITE]
    given = {
        protocol.JOB: folder,
        protocol.FOLDER: folder,
        protocol.FENCE: fence,
        protocol.PARENT: str(os.getpid()),
        "PYTHONPATH": os.pathsep.join(path),
    }
    if only_record:
        given[protocol.RECORD] = "1"
    if backend:
        given[protocol.BACKEND] = backend
    kept = {name: value for name, value in environment.items() if name not in (protocol.RECORD, protocol.HOSTS)}
    return {**kept, **given}
