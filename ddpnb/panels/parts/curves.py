"""Memory over time: of the processes of the ranks and their GPUs, since the dashboard was opened."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from ddpnb.model.recording import Recording
from ddpnb.panels.live import Picture
from ddpnb.panels.part import Context, Part
from ddpnb.render import controls
from ddpnb.render.figures import canvas, over_time
from ddpnb.widgets.fragment import Fragment

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

    def plot(self, ax: Any = None) -> Any:
        """matplotlib Axes with a line per rank; ``ax``: where to draw, None: a new figure."""
        return over_time.memory(list(self._rows), ax)


class MemoryOverTime(Part[Fragment]):
    name = "memory"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.widget = self.fragment("Memory over time", "memory over time")
        self._memory = Memory()

    def show_picture(self, picture: Picture) -> None:
        self._memory.take(picture.recording)

    def unfolded(self) -> None:
        self.context.tasks.start("drawing", self._draw)

    def act(self, action: str, values: Mapping[str, str]) -> bool:
        del values
        if action not in ("save PNG", "save SVG"):
            return False
        self.context.tasks.start("saving", lambda: self._save(action[-3:].lower()))
        return True

    def plot(self, ax: Any = None) -> Any:
        """Draw what the buttons save: the memory of each rank since the dashboard was opened.

        Args:
            ax: matplotlib Axes to draw the memory of the processes on; None: a new figure, with that of the GPUs too.

        Returns:
            The Axes.
        """
        return self._memory.plot(ax)

    def _draw(self) -> None:
        drawn = canvas.drawn(self._memory.plot())
        self.widget.show(controls.picture(drawn, "memory of each rank over time"), "memory of each rank over time")

    def _save(self, kind: str) -> str:
        path = f"ddpnb-memory.{kind}"
        with open(path, "wb") as file:
            file.write(canvas.drawn(self._memory.plot(), kind))
        return f"Saved as {path}."
