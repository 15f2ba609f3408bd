"""Called on an engine: what ipyparallel would pickle goes back to the launcher as JSON text."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from ipyparallel.serialize import PrePickled

from ddpnb.recording.protocol import AGENT


def identity() -> list[Any]:
    """Who this engine is: its rank, as text (None: it is none), its process ID, and the host whose agent it is (or None)."""
    agent = os.environ.get(AGENT)
    return [os.environ.get("RANK") if agent is None else None, os.getpid(), agent]


def in_json(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function; what it returns, as the JSON text that ``Reply.get`` reads."""
    reply = PrePickled.__new__(PrePickled)  # ipyparallel sends the buffers of such an object as they are
    reply.buffers = [json.dumps(function(*args), default=str).encode()]
    return reply
