"""Called on an engine: what ipyparallel would pickle goes back to the launcher as JSON text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ipyparallel.serialize import PrePickled


def in_json(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function; what it returns, as the JSON text that ``Reply.get`` reads."""
    reply = PrePickled.__new__(PrePickled)  # ipyparallel sends the buffers of such an object as they are
    reply.buffers = [json.dumps(function(*args), default=str).encode()]
    return reply
