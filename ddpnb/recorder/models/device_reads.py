"""Reads that may wait for a device, in threads of their own: the control channel must be able to answer after them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ddpnb.recorder.stacks.evaluation import sentence
from ddpnb.recorder.stacks.own_threads import own_thread

STUCK = "an earlier read still waits for the device; release() or restart() the rank."


class DeviceReads:
    """One read at a time; one that never ends stops all later ones, since they would wait too."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.stuck: threading.Thread | None = None

    def answer(self, read: Callable[[], dict[str, Any]], seconds: float, grace_s: float = 0.0) -> dict[str, Any]:
        """What ``read`` returns; or ``error``, a sentence, where it raises or does not end in time, and ``grace_s`` later."""
        if self.stuck is not None and self.stuck.is_alive():
            return {"error": STUCK}
        result: dict[str, Any] = {}

        def work() -> None:
            try:
                result.update(read())
            except BaseException as error:
                result["error"] = sentence(error)

        thread = own_thread(work, self._name)
        thread.start()
        thread.join(seconds + grace_s)
        if thread.is_alive():
            self.stuck = thread
            return {"error": f"the device gave no values within {seconds:g} s; the read waits in its own thread."}
        return dict(result)
