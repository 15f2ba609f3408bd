"""Messages between the launcher of a job and its agents on other hosts, JSON in one frame; and how it is reached here."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from ddpnb.recording import protocol
from ddpnb.recording.names import UNDECODABLE

#: in the folder of a job, once it has ranks on other hosts: how another process of this host reaches the launcher
WAY = "hosts.json"
_START = re.compile(r"[0-9a-f]{12}-\d{1,4}")


def encoded(message: Mapping[str, Any]) -> bytes:
    """A message as bytes."""
    return json.dumps(message, default=str).encode()


def understood(frame: bytes) -> dict[str, Any]:
    """A message that came.

    Raises:
        ValueError: it is none.
    """
    try:
        message = json.loads(frame)
    except UNDECODABLE as error:
        raise ValueError(f"no message: {error}") from None
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise ValueError("no message")
    return message


def of_start(name: str) -> bool:
    """Whether this is the name of the folder of a start of a process group (``protocol.start_folder``)."""
    return _START.fullmatch(name) is not None


def way_to(job: str) -> dict[str, Any] | None:
    """How the launcher of this job is reached; None: it has no ranks on other hosts, or does not live."""
    try:
        with open(os.path.join(job, WAY)) as file:
            way: dict[str, Any] = json.load(file)
        return way if protocol.started(way["pid"]) == way["started"] else None
    except (OSError, ValueError, LookupError):
        return None
