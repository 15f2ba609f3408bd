"""Keeps the time account of a run up to date from the black boxes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from ddpnb.ranks import machine
from ddpnb.recording.account import Account
from ddpnb.recording.blackbox import BoxReader, News
from ddpnb.recording.timing.account import Ledger
from ddpnb.texts import shortened

_PAUSE = 10  # pause after an update, as a multiple of its duration


class TimeLedger:
    """The time account of one run. Any thread may use it.

    It is not part of the diagnosis: if it fails, the account says so and the run is still monitored.

    Args:
        run: its number.
        queued: see ``Outside.queued``.
    """

    def __init__(self, run: int, queued: Callable[[int, int], tuple[int, int] | None]) -> None:
        self._run = run
        self._queued = queued
        self._ledger = Ledger()
        self._news: dict[int, News] = {}
        self._lock = threading.Lock()
        self._failure = ""
        self._not_before = 0.0

    def update(self, readers: Mapping[int, BoxReader], ended_ns: Mapping[int, int], *, now: bool = False) -> None:
        """Read new calls and marks.

        Uses at most a tenth of a core: if that is not enough, the account says how much it covers.

        Args:
            readers: of the black boxes, for each rank that has one.
            ended_ns: for each rank where the script has ended, when.
            now: also if the last update was a moment ago.
        """
        with self._lock:
            began = time.monotonic()
            if self._failure or (began < self._not_before and not now and len(ended_ns) < len(readers)):
                return
            try:
                for rank, reader in readers.items():
                    status = reader.status
                    if status.run > self._run:
                        continue  # another run has the ranks
                    queued = self._queued(rank, status.pid)
                    if status.run < self._run:  # not begun there
                        self._ledger.take(rank, (), queued=queued)
                        continue
                    if rank not in self._news:
                        self._news[rank] = News(reader)
                    calls, marks, lost = self._news[rank].look()
                    self._ledger.take(rank, calls, marks, lost, ended_ns.get(rank, 0), queued)
                self._not_before = began + _PAUSE * (time.monotonic() - began)
            except Exception as error:
                self._failure = shortened(f"{type(error).__name__}: {error}", 300)

    def account(self, now_ns: int) -> Account:
        """The account up to this moment of the monotonic clock."""
        with self._lock:
            account = self._ledger.account(now_ns, machine.cores())
        if self._failure:
            note = f"The time account is incomplete: it failed ({self._failure})."
            account = replace(account, notes=(*account.notes, note))
        return account
