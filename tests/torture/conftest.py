"""Attempts to break ddpnb: ``make torture``, or ``pytest -m torture tests/torture``.

Without ``-m torture`` only the cases run that carry the mark ``world`` too, and only with ``--full``: a cheap slice for
``make test-all``.
"""

from __future__ import annotations

import signal

import pytest

from tests.torture.harness import Command, stop_all


def pytest_collection_modifyitems(config, items):
    if "torture" in config.option.markexpr:
        return
    full = config.getoption("--full")
    left_out = [
        item for item in items if item.get_closest_marker("torture") and not (full and item.get_closest_marker("world"))
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session", autouse=True)
def signals_reach_ranks():
    """Started by nohup or in the background, this process ignores some; its children do so too, unless it handles them."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.fixture
def command(tmp_path):
    """Starts ``ddpnb`` with these arguments; whatever it leaves behind is ended after the test."""
    started: list[Command] = []

    def start(*arguments, **more) -> Command:
        started.append(Command(tmp_path, arguments, **more))
        return started[-1]

    yield start
    for one in started:
        stop_all(one.mark)
        one.close()
