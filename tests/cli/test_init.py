"""The exit status of an interrupted command."""

from __future__ import annotations

import os
import signal
import time

import pytest

from ddpnb import cli


@pytest.fixture(autouse=True)
def _usual_handler():
    """Whatever these tests were started by: a job in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_is_not_raised_again_while_it_is_reported(monkeypatch):
    """It is raised again until the command stops; while the message is written nobody would catch it."""
    said = []

    def interrupted(_arguments):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(30)

    def slow_print(*words, **_):
        time.sleep(1)
        said.append(words)

    monkeypatch.setattr(cli, "_run", interrupted)
    monkeypatch.setattr(cli, "print", slow_print, raising=False)
    try:
        status = cli.main([])
    except KeyboardInterrupt:  # it would end the tests
        pytest.fail("the interrupt was raised again")
    assert status == 130
    assert len(said) == 1
