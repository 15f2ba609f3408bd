"""What the user's signal handlers raise inside of hooks is told from what hooks raise."""

from __future__ import annotations

import functools
import signal

import pytest

from ddpnb.recorder.stacks.signal_handlers import of_handler


class Late(Exception):
    pass


def late(_number, _frame):
    raise Late


def late_with_more(_more, _number, _frame):
    raise Late


def late_in_its_own_words(*given):
    explain(*given[:1])


def explain(number):
    raise Late(number)


class Handler:
    def __call__(self, _number, _frame):
        raise Late


@pytest.fixture
def interrupted():
    """The exception of a handler that runs inside of a function."""
    before = signal.getsignal(signal.SIGALRM)

    def run(handler):
        signal.signal(signal.SIGALRM, handler)
        try:
            [signal.raise_signal(signal.SIGALRM) for _ in range(1)]
        except BaseException as error:
            return error
        raise AssertionError

    yield run
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    "handler",
    [late, functools.partial(late_with_more, 1), late_in_its_own_words, Handler(), signal.default_int_handler],
)
def test_what_a_handler_raises(interrupted, handler):
    assert of_handler(interrupted(handler))


def test_what_code_that_a_hook_calls_raises():
    with pytest.raises(Late) as raised:
        late(signal.SIGALRM, None)
    assert not of_handler(raised.value)
