"""Locks of the package filelock."""

from __future__ import annotations

import fcntl
import os
import threading
import time

import pytest
from filelock import FileLock, Timeout

from ddpnb.recorder.channel.main_wait import main_wait
from ddpnb.recorder.stacks.polled_locks import polled_lock


def seen_while(wait, release):
    seen = []

    def look():
        until = time.monotonic() + 10
        while not (main_wait().words.startswith("a file lock") or time.monotonic() > until):
            time.sleep(0.01)
        seen.append(main_wait())
        release()

    looker = threading.Thread(target=look)
    looker.start()
    wait()
    looker.join()
    return seen[0]


@pytest.mark.parametrize("timeout", [None, 30])
def test_the_file_and_who_holds_its_lock(tmp_path, timeout):
    path = str(tmp_path / "cache.lock")
    asks, held = FileLock(path), open(path, "w")
    fcntl.flock(held, fcntl.LOCK_EX)
    seen = seen_while(lambda: asks.acquire(timeout=timeout, poll_interval=0.2), held.close)
    assert seen.words == f"a file lock on {path}"
    # With a time-out it ends by itself: who holds the lock proves nothing.
    assert seen.holders == ((os.getpid(),) if timeout is None else ())
    asks.release()


def test_a_thread_that_asks_for_no_lock(tmp_path):
    with FileLock(tmp_path / "cache.lock"), pytest.raises(Timeout):
        FileLock(tmp_path / "cache.lock").acquire(timeout=0)
    assert polled_lock(threading.get_ident()) is polled_lock(None) is None
