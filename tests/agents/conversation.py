"""Conversations with a server in a thread of their own: another test may have left a running event loop in this one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def held(conversation: Coroutine[Any, Any, Any], limit_s: float = 280) -> Any:
    """What a conversation returns."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, asyncio.wait_for(conversation, limit_s)).result()
