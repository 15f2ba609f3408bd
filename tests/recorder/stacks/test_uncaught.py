"""Exceptions that nothing handles: the thread is held where they are raised, before anything has run for them; others are left alone."""

from __future__ import annotations

import sys
import threading

import pytest

from ddpnb.recorder.stacks.user_frames import frames_of, is_user_frame
from ddpnb.recording.holds import Hold
from tests.recorder.holds.test_lines import Stepped

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 does not report exceptions")

PROGRAM = """\
import asyncio, contextlib, threading
from concurrent.futures import ThreadPoolExecutor
lock = threading.Lock()
ran = []

class Quiet:
    def __enter__(self): return self
    def __exit__(self, *args): return True

class Plain:
    def __enter__(self): return self
    def __exit__(self, kind, error, trace): ran.append("exit")
    @property
    def wrong(self): raise AttributeError("no") # wrong

@contextlib.contextmanager
def managed():
    try: yield
    finally: ran.append("managed")

@contextlib.contextmanager
def catching():
    try: yield
    except KeyError: pass

def fail(value):
    return {}[value]                            # raised

def behind_cleanup():
    with open(__file__), lock, Plain(), managed():
        try:
            fail(1)
        finally:
            ran.append("finally")

def another_class():
    try: fail(1)
    except (ValueError, threading.ThreadError): ran.append("wrong")

def logged():
    try: fail(1)
    except Exception as error:
        if lock: ran.append(str(error))
        raise

def converted():
    try: fail(1)
    except KeyError as error: raise RuntimeError("no") from error

def an_attribute():
    return Plain().wrong

def sometimes(error=ValueError):
    try: fail(1)
    except KeyError as found:
        if len(ran) < 5: raise                  # again

def managed_by_argument(make=lambda: Plain()):
    with make(): fail(1)                        # unknown

def in_a_pool():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(fail, 1).result()           # the result

async def waits():
    await asyncio.sleep(0)
    fail(1)

def in_a_loop():
    asyncio.run(waits())                        # runs

def handled():
    try: fail(1)
    except KeyError: pass

def suppressed():
    with contextlib.suppress(KeyError): fail(1)
    with Quiet(): fail(1)
    with catching(): fail(1)

def left_by_finally():
    for _ in range(2):
        try: fail(1)
        finally: break

def converted_and_handled():
    try: converted()
    except RuntimeError: pass

def asked():
    return hasattr(Plain(), "wrong")

def taken_from():
    try: next(one for one in ())
    except StopIteration: pass
    with contextlib.suppress(Exception):
        try: fail(1)
        except* KeyError: pass
"""


def line_of(mark):
    return next(number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith(f" # {mark}"))


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    made = Stepped(tmp_path, PROGRAM)
    made.gate.hold(Hold(exception=True))

    def run(name):
        made.thread = threading.Thread(target=made.names[name], daemon=True)
        made.thread.start()
        return made

    yield run
    made.gate.remove(Hold(exception=True))
    made.gate.resume()
    made.thread.join(30)
    assert not made.thread.is_alive()


@pytest.mark.parametrize("name", ["behind_cleanup", "another_class", "logged", "converted"])
def test_it_is_shown_where_it_is_raised_with_nothing_run(program, name):
    stepped = program(name)
    assert stepped.line == line_of("raised")
    (held,) = stepped.gate.state()["held"]
    assert (held["reason"], held["function"]) == ("KeyError: 1", "fail")
    frames = [one for one in frames_of(stepped.thread.ident) if is_user_frame(one)]
    assert [one.f_code.co_name for one in frames][:2] == ["fail", name] and frames[0].f_locals["value"] == 1
    assert stepped.names["ran"] == []
    assert stepped.resume() is None, "it is shown once"


def test_an_attribute_that_is_read_and_one_that_is_raised_again(program):
    stepped = program("an_attribute")
    assert stepped.line == line_of("wrong")
    assert stepped.resume() is None
    stepped = program("sometimes")
    assert stepped.line == line_of("raised")
    assert f"since line {line_of('again')} of sometimes might" in stepped.gate.state()["held"][0]["reason"]
    assert stepped.resume() is None


@pytest.mark.parametrize("name", ["in_a_pool", "in_a_loop"])
def test_one_that_another_thread_or_task_hands_over_is_shown_with_its_own_frames(program, name):
    stepped = program(name)
    assert stepped.line == line_of("raised")
    frames = [one.f_code.co_name for one in frames_of(stepped.thread.ident) if is_user_frame(one)]
    assert frames[0] == "fail" and name in frames
    assert stepped.resume() is None


@pytest.mark.parametrize(
    "name", ["handled", "suppressed", "left_by_finally", "converted_and_handled", "asked", "taken_from"]
)
def test_what_is_handled_stops_nobody(program, name):
    stepped = program(name)
    assert stepped.line is None


def test_where_it_cannot_be_known_it_is_shown_behind_finally_and_said(program):
    stepped = program("managed_by_argument")
    assert stepped.line == line_of("raised")
    (held,) = stepped.gate.state()["held"]
    number = line_of("unknown")
    assert f"with blocks, since line {number} of managed_by_argument might have handled it" in held["reason"]
    assert stepped.names["ran"] == ["exit"]
