"""Calls in flight: what the recorder keeps of them never reaches the user's ``wait()`` as an error."""

from __future__ import annotations

import struct
import threading
import time

import pytest

from ddpnb.recorder.collectives.in_flight import Flight
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording import blackbox as layout
from ddpnb.recording.calls import CallState
from ddpnb.recording.events.models import RngRestored


class Work:
    """Of the backend."""


@pytest.fixture
def box(tmp_path):
    return BlackBox(str(tmp_path / "rank0.box"), 0)


def test_two_threads_let_go_of_the_same_works(box):
    """The control channel's snapshot, or another thread's wait, takes the last one between the look and the pop."""

    class Taken(list):
        def __bool__(self):
            return True

    flight = Flight(box)
    work = Work()
    flight.fresh = Taken([(work, (0, 0, True))])
    flight.loosen()
    assert list(flight.p2p) == [work] and not list(flight.fresh)


def test_a_clock_that_a_script_replaces_is_not_ours(box, monkeypatch):
    """A test of the user's that patches ``time``: -1 does not fit into a record."""
    monkeypatch.setattr(time, "monotonic_ns", lambda: -1)
    at = layout.CALLS_AT
    layout.CALL.pack_into(box.memory, at, 1, 0, 1, 0, 0, int(CallState.ISSUED), 0, -1, 0, 0, 0, 1, 1, 0)
    Flight(box).finish((at, 0, True), int(CallState.COMPLETED))
    assert box.memory[at + layout.CALL_STATE_AT] == CallState.COMPLETED
    box.set_run(1, layout.RUN_ACTIVE)
    box.emit(RngRestored())


def test_the_end_of_a_call_has_a_time_which_no_later_one_replaces(box):
    at = layout.CALLS_AT
    layout.CALL.pack_into(box.memory, at, 1, 0, 1, 0, 0, int(CallState.ISSUED), 0, -1, 0, 0, 0, 1, 1, 0)
    ends = []
    for _ in range(2):
        Flight(box).finish((at, 0, True), int(CallState.COMPLETED))
        ends.append(struct.unpack_from("<Q", box.memory, at + layout.CALL_DONE_AT)[0])
    assert ends[0] > 0 and ends[0] == ends[1]


def test_a_clock_that_stands_still_does_not_keep_the_rank(box, monkeypatch):
    monkeypatch.setattr(time, "monotonic", lambda: 5.0)
    flight = Flight(box)
    work = Work()
    work.is_completed = lambda: False
    flight.pending[work] = (layout.CALLS_AT, 0, True)
    thread = threading.Thread(target=flight.drain, args=(0.01,), daemon=True)
    thread.start()
    thread.join(60)
    ended = not thread.is_alive()
    flight.pending.clear()
    assert ended
