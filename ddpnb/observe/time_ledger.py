"""Keeps the time account of a run while it is watched: new records only, every now and then."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import replace

from ddpnb.model.account import Account
from ddpnb.model.blackbox import BoxReader, News
from ddpnb.timing.account import Ledger

_PAUSE = 10  # from one look to the next, at least, in times of what the look took


class Books:
    """The ledger of one run, fed from the black boxes. Any thread may look or ask.

    It is no part of the verdict: when it fails it is closed, says so in the account, and the run is
    watched on.
    """

    def __init__(self, run: int) -> None:
        self._run = run
        self._ledger = Ledger()
        self._news: dict[int, News] = {}
        self._lock = threading.Lock()
        self._failure = ""
        self._not_before = 0.0

    def look(self, readers: Mapping[int, BoxReader], ended_ns: Mapping[int, int], *, now: bool = False) -> None:
        """Book what is new in these boxes.

        It takes a tenth of a core at most: where that is not enough the account says how much it
        covers.

        Args:
            readers: the box of each rank, as far as there is one.
            ended_ns: when the script ended on a rank.
            now: even if it has just taken its time.
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
                    queued = _queued(status.pid)
                    if status.run < self._run:  # not begun there
                        self._ledger.take(rank, (), queued=queued)
                        continue
                    if rank not in self._news:
                        self._news[rank] = News(reader)
                    calls, marks, lost = self._news[rank].look()
                    self._ledger.take(rank, calls, marks, lost, ended_ns.get(rank, 0), queued)
                self._not_before = began + _PAUSE * (time.monotonic() - began)
            except Exception as error:
                self._failure = f"{type(error).__name__}: {error}"[:300]

    def account(self, now_ns: int) -> Account:
        """The account up to this moment of the monotonic clock."""
        with self._lock:
            found = self._ledger.account(now_ns, cores())
        if self._failure:
            found = replace(
                found, notes=(*found.notes, f"The time account is incomplete: it failed ({self._failure}).")
            )
        return found


def _queued(pid: int) -> tuple[int, int] | None:
    """For how long the main thread of a process has waited for a core, as Linux's scheduler tells."""
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as file:
            return time.monotonic_ns(), int(file.read(200).split()[1])
    except (OSError, ValueError, IndexError):
        return None


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 0
