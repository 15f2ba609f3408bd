"""A signal that ends a command is noticed once, is never lost, and does not disturb what must be finished."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from ddpnb.recording import interrupts

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)


@pytest.fixture(autouse=True)
def _usual_handlers():
    """Whatever these tests were started by (a job in the background ignores SIGINT)."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for number in SIGNALS[2:]:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: int, wait: float = 5.0) -> None:
    os.kill(os.getpid(), number)
    time.sleep(wait)


@pytest.mark.parametrize(("number", "raised", "status"), [
    (signal.SIGINT, KeyboardInterrupt, None), (signal.SIGTERM, SystemExit, 143), (signal.SIGHUP, SystemExit, 129),
    (signal.SIGQUIT, SystemExit, 131),
])  # fmt: skip
def test_each_signal_ends_the_command(number, raised, status):
    with pytest.raises(raised) as caught, interrupts.ending():
        send(number)
    assert getattr(caught.value, "code", None) == status
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_is_swallowed_comes_again():
    """As in the callback of a weak reference, which imports run many of, and in a library's bare except."""

    def swallows():
        try:
            send(signal.SIGINT)
        except:  # noqa: E722
            pass
        time.sleep(30)

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupts.ending():
        swallows()
    assert time.monotonic() - begun < 20


def test_an_interrupt_that_python_drops_prints_no_traceback(monkeypatch):
    """In a destructor or a weak reference's callback: the exception comes again, so there is nothing to report."""
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: reported.append(dropped.exc_type))
    before = sys.unraisablehook

    class Interrupted:
        def __del__(self):
            send(signal.SIGINT)

    class Faulty:
        def __del__(self):
            raise LookupError

    def is_interrupted_in_a_destructor():
        Faulty()
        Interrupted()
        time.sleep(30)

    with pytest.raises(KeyboardInterrupt), interrupts.ending():
        is_interrupted_in_a_destructor()
    assert reported == [LookupError]
    assert sys.unraisablehook is before


def test_once_it_is_noticed_nothing_is_raised_again():
    with interrupts.ending():
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
        interrupts.notice()
        for number in SIGNALS[:4]:
            send(number, 0)
        time.sleep(4 * interrupts._AGAIN_S)


@pytest.mark.parametrize("times", [1, 2])
def test_what_is_begun_is_finished_first(times):
    finished = []

    @interrupts.put_off()
    def finish():
        for _ in range(times):
            send(signal.SIGINT, 0.05)
        finished.append(True)

    with pytest.raises(KeyboardInterrupt):
        finish()
    assert finished


def test_a_dropped_interrupt_is_raised_after_what_was_begun():
    """A library drops the exception, and the world is closed before it is raised again: the command must not go on."""
    finished = []

    @interrupts.put_off()
    def finish():
        time.sleep(2 * interrupts._AGAIN_S)
        finished.append(True)

    def command():
        try:
            send(signal.SIGINT)
        except KeyboardInterrupt:
            pass
        finish()
        finished.append("went on")

    with pytest.raises(KeyboardInterrupt), interrupts.ending():
        command()
    assert finished == [True]


@pytest.mark.parametrize("fails", [False, True])
def test_an_interrupt_that_arrived_is_not_raised_again_after_what_was_begun(fails):
    finished = []

    class Closes:
        @interrupts.put_off()
        def close(self):
            finished.append(True)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.close()

    def command():
        with Closes():
            try:
                send(signal.SIGINT)
            except KeyboardInterrupt:
                if fails:
                    raise OSError("on the way out") from None
                raise

    with interrupts.ending():
        with pytest.raises(OSError if fails else KeyboardInterrupt):
            command()
        time.sleep(2 * interrupts._AGAIN_S)
    assert finished


@pytest.mark.parametrize("within", [interrupts.put_off, interrupts.ending])
def test_a_signal_while_handlers_are_replaced_leaves_none_behind(monkeypatch, within):
    replaced, usual = [], signal.signal

    def interrupted(number, handler):
        usual(number, handler)
        replaced.append(number)
        if len(replaced) == 1:
            raise SystemExit(143)

    def command():
        with within():
            pass

    with monkeypatch.context() as patched:
        patched.setattr(signal, "signal", interrupted)
        with pytest.raises(SystemExit):
            command()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert interrupts._ending is None


@pytest.fixture
def timer():
    """A time limit of the caller's: pytest-timeout has one of this kind. Returns the times at which it struck."""
    struck = []
    before = signal.signal(signal.SIGALRM, lambda *_: struck.append(time.monotonic()))
    left = signal.setitimer(signal.ITIMER_REAL, 0)
    yield struck
    signal.signal(signal.SIGALRM, before)
    signal.setitimer(signal.ITIMER_REAL, *left)


def test_without_a_signal_the_callers_timer_is_not_touched(timer):
    handler = signal.getsignal(signal.SIGALRM)
    signal.setitimer(signal.ITIMER_REAL, 60, 7)
    with interrupts.ending(), interrupts.put_off():
        assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getsignal(signal.SIGALRM) is handler
    left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
    assert 0 < left <= 60 and interval == 7
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    with interrupts.ending():
        time.sleep(0.2)
    assert len(timer) == 1


def test_the_callers_timer_goes_on_after_a_signal(timer):
    handler = signal.getsignal(signal.SIGALRM)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    with pytest.raises(KeyboardInterrupt), interrupts.ending():
        send(signal.SIGINT)
    assert signal.getsignal(signal.SIGALRM) is handler
    deadline = time.monotonic() + 240
    while not timer and time.monotonic() < deadline:
        time.sleep(0.01)
    assert timer


def test_what_does_not_end_the_command_is_passed_on():
    passed = []
    with interrupts.ending():
        with interrupts.passed_on(passed.append):
            send(signal.SIGUSR1, 0)
        assert interrupts.received() == (0, 0)
        with pytest.raises(SystemExit):
            send(signal.SIGTERM)
        assert interrupts.received()[0] == signal.SIGTERM
        interrupts.notice()
        with interrupts.passed_on(passed.append):
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
                send(number, 0)
        send(signal.SIGTERM, 0)
    assert passed == [signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_an_ignored_signal_stays_ignored():
    """``nohup``, and a job that a shell started in the background."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupts.ending(), interrupts.put_off():
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_a_signal_after_the_end_changes_nothing():
    code = """
import atexit, os, signal, time
from ddpnb.recording import interrupts
signal.signal(signal.SIGINT, signal.default_int_handler)
def late():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)
    print("ended", flush=True)
atexit.register(late)
try:
    with interrupts.ending(for_good=True):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
except KeyboardInterrupt:
    raise SystemExit(130)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "ended\n", "")
