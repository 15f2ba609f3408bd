"""What a call of ``init_rpc`` says of the ranks that meet in it, and a note of it by a process that is no rank. No torch."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ddpnb.recording.files import write_private

_NAMES = "name", "backend", "rank", "world_size", "rpc_backend_options"


def start_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """How its ranks meet: ``init_method``, ``rank`` and ``world_size``, which is missing where ranks come and go."""
    given = dict(zip(_NAMES, args, strict=False)) | dict(kwargs)
    found: dict[str, Any] = {
        "init_method": str(getattr(given.get("rpc_backend_options"), "init_method", "") or "env://")
    }
    for name in ("rank", "world_size"):
        value = given.get(name)
        text = os.environ.get(name.upper(), "") if value in (None, -1) else str(value)
        if text.isdecimal():
            found[name] = int(text)
    return found


def note(folder: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Write that this process waits in ``init_rpc``; returns the file, which is to be removed afterwards.

    Raises:
        OSError: it cannot be written.
    """
    path = os.path.join(folder, f"rpc-{os.getpid()}.json")
    write_private(path, json.dumps(start_of(args, kwargs)))
    return path


def waiting(folder: str) -> dict[int, str]:
    """For each process that waits in ``init_rpc``, how many of its ranks do so: ``1 of 2 ranks have joined``."""
    starts: dict[int, Mapping[str, Any]] = {}
    for path in glob.glob(os.path.join(glob.escape(folder), "rpc-*.json")):
        try:
            with open(path) as file:
                start = json.load(file)
            starts[int(path.rpartition("-")[2].removesuffix(".json"))] = {"rank": None, "world_size": 0, **start}
        except (OSError, ValueError, TypeError):
            continue
    return {
        pid: f"{len({one['rank'] for one in starts.values() if one['world_size'] == size})} of {size} ranks have joined"
        for pid, start in starts.items()
        if isinstance(size := start["world_size"], int) and size > 1
    }
