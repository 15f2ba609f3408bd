"""Marks, and what is new in a box since the last look."""

from __future__ import annotations

import random
import struct

import pytest

from ddpnb.recording import blackbox as layout
from ddpnb.recording.blackbox import BoxReader, News
from ddpnb.recording.calls import CallState
from ddpnb.recording.marks import MARK_KINDS, Mark
from tests.recording.test_blackbox import PackedBox


class MarkedBox(PackedBox):
    def __init__(self) -> None:
        super().__init__()
        self.mark_count = self.first_mark = 0

    def mark(self, kind: int = layout.MARK_STEP, *, stamp: int | None = None, **fields: int) -> None:
        value = dict.fromkeys(("thread", "threads", "steps", "at", "thread_ns", "cpu", "data"), 0) | fields
        number = self.mark_count
        layout.MARK.pack_into(
            self.memory, layout.MARKS_AT + number % layout.MARKS * layout.MARK_SIZE,
            number + 1 if stamp is None else stamp, kind, *value.values(),
        )  # fmt: skip
        self.mark_count += 1
        layout.MARKED.pack_into(self.memory, layout.MARKED_AT, self.mark_count, self.first_mark)

    def state(self, number: int, state: CallState) -> None:
        at = layout.CALLS_AT + number % layout.CALLS * layout.CALL_SIZE + layout.CALL_STATE_AT
        struct.pack_into("<I", self.memory, at, state)


@pytest.fixture
def box():
    return MarkedBox()


def numbers(calls) -> list[int]:
    return [call.number for call in calls]


# -- marks


@pytest.mark.parametrize(("number", "kind"), list(enumerate(MARK_KINDS)))
def test_a_mark_comes_back_as_it_was_written(box, number, kind):
    box.mark(number, thread=7, threads=4, steps=12, at=1 << 40, thread_ns=5, cpu=6, data=8)
    assert box.reader.marks() == (Mark(0, kind, 1 << 40, 7, 5, 6, 8, 12, 4),)


def test_marks_since_a_number(box):
    for _ in range(5):
        box.mark()
    assert [mark.number for mark in box.reader.marks(3)] == [3, 4]
    assert box.reader.marks(9) == ()


def test_marks_of_an_earlier_run_are_left_out(box):
    box.mark()
    box.first_mark = 1
    box.mark()
    assert [mark.number for mark in box.reader.marks()] == [1]


def test_a_ring_of_marks_that_has_come_round_gives_the_newest(box):
    for _ in range(layout.MARKS + 3):
        box.mark()
    found = box.reader.marks()
    assert (len(found), found[0].number, found[-1].number) == (layout.MARKS, 3, layout.MARKS + 2)


@pytest.mark.parametrize("odd", [{"stamp": 9}, {"kind": len(MARK_KINDS)}])
def test_a_mark_that_is_being_written_or_of_no_known_kind_is_left_out(box, odd):
    box.mark(**odd)
    box.mark()
    assert [mark.number for mark in box.reader.marks()] == [1]


# -- news


def test_a_call_is_told_once(box):
    news = News(box.reader)
    box.call(seq=1)
    assert numbers(news.look()[0]) == [0]
    assert news.look() == ((), (), 0)
    box.call(seq=2)
    assert numbers(news.look()[0]) == [1]


def test_a_call_in_flight_is_told_again_when_its_state_has_changed(box):
    news = News(box.reader)
    box.call(state=CallState.ENTERED)
    box.call(state=CallState.COMPLETED)
    assert numbers(news.look()[0]) == [0, 1]
    assert news.look()[0] == ()
    box.state(0, CallState.WAITING)
    assert [call.state for call in news.look()[0]] == [CallState.WAITING]
    box.state(0, CallState.COMPLETED)
    assert [call.state for call in news.look()[0]] == [CallState.COMPLETED]
    assert news.look()[0] == ()


def test_calls_that_left_the_ring_unseen_are_counted(box):
    news = News(box.reader)
    box.call()
    news.look()
    for _ in range(layout.CALLS + 10):
        box.call()
    calls, _, lost = news.look()
    assert (len(calls), lost) == (layout.CALLS, 10)
    assert news.look()[2] == 0


def test_a_record_that_was_being_written_comes_later(box):
    news = News(box.reader)
    box.call(stamp=0)
    box.call()
    assert numbers(news.look()[0]) == [1]
    struct.pack_into("<Q", box.memory, layout.CALLS_AT, 1)
    assert numbers(news.look()[0]) == [0]


def test_marks_are_told_once(box):
    news = News(box.reader)
    box.mark()
    assert [mark.number for mark in news.look()[1]] == [0]
    box.mark()
    assert [mark.number for mark in news.look()[1]] == [1]
    assert news.look()[1] == ()


def test_another_run_begins_anew(box):
    news = News(box.reader)
    box.call(state=CallState.WAITING)
    news.look()
    box.call()
    box.first = (1, 0)
    box.write_status(run=2)
    assert numbers(news.look()[0]) == [1]


@pytest.mark.parametrize("seed", range(5))
def test_garbage_never_raises(seed):
    memory = bytearray(random.Random(seed).randbytes(layout.BOX_SIZE))
    memory[:8] = layout.MAGIC
    news = News(BoxReader(memory))
    for _ in range(2):
        calls, marks, lost = news.look()
        assert len(calls) <= layout.CALLS
        assert len(marks) <= layout.MARKS
        assert lost >= 0
