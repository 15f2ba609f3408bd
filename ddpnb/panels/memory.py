"""Memory over time: of the processes of the ranks and their GPUs, since the dashboard was opened."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from ddpnb.model.recording import Recording
from ddpnb.render import lines

_MOST = 1800  # looks; then every second one is dropped
_EVERY_S = 0.5


class Memory:
    """A history of memory, one row per look."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._rows: deque[tuple[float, dict[int, int], dict[int, int]]] = deque()
        self._every = _EVERY_S

    def take(self, recording: Recording) -> None:
        """Add the values of this picture, if the last ones are old enough."""
        now = time.monotonic() - self._began
        if self._rows and now - self._rows[-1][0] < self._every:
            return
        host = {rank: one.process.memory for rank, one in recording.ranks.items() if one.process.memory}
        device = {rank: one.process.device_memory for rank, one in recording.ranks.items() if one.process.device_memory}
        self._rows.append((now, host, device))
        if len(self._rows) > _MOST:
            self._rows = deque(list(self._rows)[::2])
            self._every *= 2

    def figure(self) -> Any:
        """A matplotlib Figure: a line per rank."""
        return lines.memory(list(self._rows))
