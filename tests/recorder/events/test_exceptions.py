"""Exceptions that end a thread of the user's."""

from __future__ import annotations

import threading

import pytest

from ddpnb.recorder.events.exceptions import FailedThreads
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording.blackbox import BoxReader
from ddpnb.recording.events.runs import ThreadFailed


@pytest.fixture
def box(tmp_path):
    return BlackBox(str(tmp_path / "rank0.box"), 0)


@pytest.fixture
def seen(box, monkeypatch):
    """What the hook of the script, or of Python, is given."""
    seen: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_type.__name__))
    hooks = FailedThreads(box)
    hooks.install()
    yield seen
    hooks.remove()


def runs(work):
    thread = threading.Thread(target=work, name="prefetch")
    thread.start()
    thread.join()


def decode():
    return int("x")


def test_the_line_that_ended_a_thread(box, seen):
    runs(decode)
    (event,) = [event for event in BoxReader(box.memory).events() if isinstance(event, ThreadFailed)]
    assert (event.thread, event.exception, event.site.function) == ("prefetch", "ValueError", "decode")
    assert (event.site.file, event.site.line) == (__file__, decode.__code__.co_firstlineno + 1)
    assert seen == ["ValueError"], "the hook that was there before is called"


def test_a_thread_that_returns_or_exits_is_not_recorded(box, seen):
    runs(lambda: None)
    runs(lambda: exec("raise SystemExit"))
    assert not [event for event in BoxReader(box.memory).events() if isinstance(event, ThreadFailed)]
