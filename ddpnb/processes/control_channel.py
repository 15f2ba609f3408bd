"""The client end of the control channel."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ddpnb.processes.engines import Engines
from ddpnb.recorder.protocol import REQUEST


def ask(engines: Engines, ranks: Sequence[int], content: dict[str, Any], timeout: float) -> dict[int, dict[str, Any]]:
    """Send a request to these ranks on their control channels; returns the answers that came in time.

    A separate thread serves the control channel, so a rank that hangs answers too.
    """
    return ask_each(engines, dict.fromkeys(ranks, content), timeout)


def ask_each(engines: Engines, contents: Mapping[int, dict[str, Any]], timeout: float) -> dict[int, dict[str, Any]]:
    """Send each rank its own request; the answers are in the order of the requests."""
    client = engines.client
    if client is None or not engines.controller_alive:
        return {}
    pending: dict[int, Any] = {
        rank: client._send_control_request([engines.engine_id(rank)], REQUEST, content, False)
        for rank, content in contents.items()
        if engines.reachable(rank)
    }
    deadline = time.monotonic() + timeout
    answers: dict[int, dict[str, Any]] = {}
    while pending:
        for rank, future in list(pending.items()):
            if future.done():
                del pending[rank]
                if future.exception() is None:
                    replies = future.result()
                    reply = replies[0] if isinstance(replies, list) else replies
                    answers[rank] = dict(reply.get("content", {}))
        if pending:
            if time.monotonic() > deadline:
                break
            time.sleep(0.001)
    return {rank: answers[rank] for rank in contents if rank in answers}  # they came in any order


def closed(client: Any) -> bool:
    """Whether this client of ipyparallel has been closed: nothing can be asked through it any more."""
    return bool(client._closed)
