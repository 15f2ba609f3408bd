"""The last state of a panel, as a second output of its cell: static HTML that a saved notebook shows without a kernel.

The page hides it while the widget lives (``render.still.wrapped``), so replacing it never touches the widget.
"""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from ddpnb.render.still import wrapped

_SOON_S = 0.3  # changes that come together are written once
_SHARE = 60  # of the time, one part in so many is spent on it
_LONGEST = 50_000  # characters of the plain text
_LIVE = "application/vnd.jupyter.widget-view+json"

State = Callable[[], tuple[str, str]]


class Kept:
    """Shows a panel with its last state beside it, and replaces that state when it has changed.

    Args:
        state: gives the state as HTML and as plain text. It is called on other threads.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.number = uuid.uuid4().hex[:12]
        self._publisher: Any = None  # of the kernel, as it was when the panel was shown: a cell may capture output
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._allowed = 0.0  # the next time at which it may be written
        self._shown = ""

    def show(self, view: dict[str, Any]) -> bool:
        """Display a panel and its state as outputs of the current cell; False where there is no kernel that does so.

        Args:
            view: the MIME bundle of the panel.
        """
        interactive = sys.modules.get("IPython")
        shell = interactive.get_ipython() if interactive is not None else None
        if getattr(shell, "kernel", None) is None or _LIVE not in view:
            return False
        publisher: Any = getattr(shell, "display_pub", None)
        # Without text: pages that do not know the widget show what comes next
        publisher.publish({_LIVE: view[_LIVE], "text/plain": ""})
        self._publish(publisher, update=False)
        self._publisher = publisher
        self.changed(urgent=True)  # since then: it was not written
        return True

    def changed(self, *, urgent: bool = False) -> None:
        """The state has changed: write it soon, on a thread of its own. Where it was never displayed, nothing is done.

        Args:
            urgent: it may be the last one: do not wait for what earlier writing cost.
        """
        if self._publisher is None:
            return
        with self._lock:
            if urgent and self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._timer is None:
                wait = _SOON_S if urgent else max(_SOON_S, self._allowed - time.monotonic())
                self._timer = threading.Timer(wait, self._write)
                self._timer.daemon = True
                self._timer.start()

    def _write(self) -> None:
        with self._lock:
            self._timer = None
        try:
            self._publish(self._publisher, update=True)
        except Exception:  # the kernel or the world may be ending: what is there stays
            return

    def _publish(self, publisher: Any, *, update: bool) -> None:
        began = time.thread_time()
        html, text = self.state()
        self._allowed = time.monotonic() + _SHARE * (time.thread_time() - began)
        if update and html == self._shown:
            return
        self._shown = html
        data = {"text/html": wrapped(html, self.number), "text/plain": text[:_LONGEST]}
        publisher.publish(data, transient={"display_id": f"ddpnb-{self.number}"}, update=update)
