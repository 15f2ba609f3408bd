"""What the main thread of this process waits for in the kernel."""

from __future__ import annotations

import multiprocessing
import os
import queue
import select
import selectors
import socket
import sys
import threading
import time

import pytest

from ddpnb.recorder.channel.main_wait import main_wait

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

CONNECTED = multiprocessing.Pipe()
WITH_TIMEOUT = {
    "sleep": time.sleep,
    "event": lambda seconds: threading.Event().wait(seconds),
    "queue": lambda seconds: pytest.raises(queue.Empty, queue.Queue().get, timeout=seconds),
    "selectors": lambda seconds: selectors.DefaultSelector().select(seconds),  # as an event loop does
    "select": lambda seconds: select.select([os.pipe()[0]], [], [], seconds),
    "connection": CONNECTED[0].poll,
}


@pytest.mark.parametrize("wait", WITH_TIMEOUT.values(), ids=WITH_TIMEOUT)
def test_a_wait_with_a_time_out_ends_then(wait):
    seen = []

    def look():
        for _ in range(3):
            time.sleep(0.1)
            seen.append(main_wait().wakes_at)

    looker = threading.Thread(target=look)
    looker.start()
    wait(0.8)
    ended = time.monotonic()
    looker.join()
    assert seen[1] is not None and seen[1] == seen[2] and ended - 0.3 < seen[1] < ended + 0.3


def test_what_the_main_thread_waits_on():
    seen = []

    def look():
        time.sleep(0.2)
        seen.append(main_wait())

    looker = threading.Thread(target=look)
    looker.start()
    began = time.monotonic()
    time.sleep(1.0)
    ended = time.monotonic()
    looker.join()
    assert (seen[0].words, seen[0].holders, seen[0].received) == ("sleep()", (), -1)
    assert began + 1.0 <= seen[0].wakes_at <= ended


def test_a_sleep_ends_when_it_ends_whatever_the_program_makes_of_the_clock(monkeypatch):
    seen = []
    looker = threading.Timer(0.2, lambda: seen.append(main_wait()))
    looker.start()
    sleep, began = time.sleep, time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: 5.0)
    sleep(2.0)
    monkeypatch.undo()
    looker.join()
    assert seen[0].words == "sleep()" and began + 2.0 <= seen[0].wakes_at <= time.monotonic()


def test_a_wait_without_a_time_out_does_not_end_by_itself():
    seen, lock = [], threading.Lock()
    lock.acquire()

    def look():
        time.sleep(0.2)
        seen.append(main_wait())
        lock.release()

    looker = threading.Thread(target=look)
    looker.start()
    lock.acquire()
    looker.join()
    assert (seen[0].words, seen[0].wakes_at) == ("a lock", None)


@pytest.mark.parametrize("timeout", [None, 20.0])
def test_what_comes_through_a_connection_is_counted(timeout):
    """As a download does that sends a byte now and then."""
    seen = []
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as reads:
        writes, _ = server.accept()
        reads.settimeout(timeout)

        def send():
            for _ in range(3):
                time.sleep(0.2)
                seen.append(main_wait().received)
                writes.sendall(b"xx")

        sender = threading.Thread(target=send)
        sender.start()
        while reads.recv(2) and len(seen) < 3:
            pass
        sender.join()
        writes.close()
    assert seen == [0, 2, 4]
