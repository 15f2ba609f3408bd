"""Signs of life of a rank that nobody watches, and its stacks once it makes no progress.

A job that is only recorded may be killed while it hangs: what a rank did then must have been written before.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from time import monotonic, process_time_ns, sleep  # a script may replace those of the module

from ddpnb.recorder.channel.encoding import encodable
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recorder.files.clock import now_ns, of_launcher
from ddpnb.recording.files import write_private
from ddpnb.recording.verbs import Done, Looked, Snapshot

BEAT_S = 2.0
FIRST_S = 10.0  # without progress, after which the stacks are written; then after twice that time, and so on
_IDLE = 0.03  # of a core: who uses less does not compute


class Heartbeat:
    """A thread that writes the time into the black box every two seconds.

    Args:
        box: of this rank.
        obey: of the control channel, which describes the stacks.
        path: of the file for the stacks. It holds those of the last time without progress.
    """

    def __init__(self, box: BlackBox, obey: Callable[[Snapshot], Done], path: str) -> None:
        self._box, self._obey, self._path = box, obey, path

    def start(self) -> None:
        threading.Thread(target=self._run, name="ddpnb heartbeat", daemon=True).start()

    def _run(self) -> None:
        try:
            self._beat()
        except Exception as error:
            print(f"ddpnb: no more stacks are recorded: {type(error).__name__}: {error}", file=sys.stderr, flush=True)

    def _beat(self) -> None:
        seen, due_s, cpu, busy = -1, FIRST_S, process_time_ns(), 0
        while not self._box.silent:
            now = now_ns()
            progress = self._box.alive(now)
            if progress != seen:
                seen, due_s, busy = progress, FIRST_S, 0
            else:
                busy = max(busy, process_time_ns() - cpu)  # in one beat
            cpu = process_time_ns()
            if (now - progress) * 1e-9 >= due_s:
                due_s *= 2
                self._write(now, idle=busy * 1e-9 < _IDLE * BEAT_S)
                cpu = process_time_ns()
            sleep(BEAT_S)

    def _write(self, now: int, *, idle: bool) -> None:
        looked = self._obey(Snapshot())
        if not isinstance(looked, Looked):
            return
        kept = {
            "stacks": looked.stacks,
            "waits_on": looked.waits_on,
            "unseen": looked.unseen,
            "wakes_in_s": None if looked.wakes_at is None else looked.wakes_at - of_launcher(monotonic()),
        }
        write_private(self._path, json.dumps(encodable({"at_ns": now, "idle": idle, **kept})))
