"""Holds at lines and steps over them, in this process: what a thread stops at, and what it shows."""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from ddpnb.errors import Released, UsageError
from ddpnb.recorder.holds import conditions
from ddpnb.recorder.holds.breakpoints import Gate
from ddpnb.recorder.holds.lines import Lines
from ddpnb.recorder.stacks.user_frames import frames_of, is_user_frame
from ddpnb.recording.holds import Hold
from ddpnb.recording.protocol import RELEASE_SIGNAL

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 does not report lines")

PROGRAM = """\
def scaled(x, by=2):
    y = x * by
    return y

def numbers(n):
    for i in range(n):
        got = i
        yield got

class Net:
    def forward(self, x):
        return scaled(x)

def main(steps):
    total = 0
    for step in range(steps):
        part = scaled(step)
        total += part
        if step == 3:
            total += 0
    return total

def drawn():
    got = []
    for one in numbers(3):
        got.append(one)
    return got

def fails(deep):
    inner = deep
    try:
        return {}[inner]
    finally:
        deep = -1

def handles():
    try:
        fails(7)
    except KeyError:
        pass

async def waits():
    a = 1
    b = a + 1
    return b
"""


class Box:
    """Keeps the events that a black box would."""

    def __init__(self):
        self.silent, self.events = [], []

    def reopen(self, number, event):
        self.events.append(event)
        return max(number, 0)

    def end(self, number):
        self.events.append(number)


class Stepped:
    """A program in a thread of its own, with holds and steps at its lines."""

    def __init__(self, tmp_path, program=PROGRAM):
        self.path = str(tmp_path / "train.py")
        (tmp_path / "train.py").write_text(program)
        self.names = {"__name__": "train", "__file__": self.path}
        exec(compile(program, self.path, "exec"), self.names)
        self.release = SimpleNamespace(wanted=[], exception=lambda: Released("released"))
        self.gate, self.box = Gate(self.release), Box()
        self.gate.lines = Lines(self.box, self.gate)
        self.result = self.error = self.thread = None

    def run(self, name, *args):
        def work():
            try:
                self.result = self.names[name](*args)
            except BaseException as error:
                self.error = error

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()

    @property
    def line(self):
        """Of the stop; None: the program has ended."""
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and self.thread.is_alive():
            held = self.gate.state()["held"]
            if held:
                return held[0]["line"]
            time.sleep(0.002)
        assert not self.thread.is_alive()
        return None

    def step(self, how="over", count=1, to=""):
        self.gate.step_lines(how, count, to)
        return self.line

    def resume(self):
        self.gate.resume()
        return self.line


@pytest.fixture
def stepped(tmp_path):
    made = Stepped(tmp_path)
    yield made
    made.gate.end_of_run()
    for hold in [one.hold for one in made.gate._holds.values()]:
        made.gate.remove(hold)
    made.release.wanted.append("over")
    made.gate.released()
    if made.thread is not None:
        made.thread.join(30)
        assert not made.thread.is_alive()
    assert sys.monitoring.get_tool(5) is None


@pytest.mark.parametrize(
    ("hold", "stops"),
    [
        (Hold(line="train.py:17"), 5),
        (Hold(line="train.py:17", when="step % 2"), 2),
        (Hold(line="train.py:17", when="any(step == n for n in (1, 4))"), 2),
        (Hold(line="train.py:17", count=4), 2),
        (Hold(line="train.py:17", when="step > 0", count=2), 3),
        (Hold(line="other.py:17"), 0),
        (Hold(line="scaled()"), 5),
        (Hold(line="train.py:scaled()", when="x == 2"), 1),
        (Hold(line="train.py:20"), 1),
    ],
    ids=str,
)
def test_where_a_hold_stops(stepped, hold, stops):
    stepped.gate.hold(hold)
    stepped.run("main", 5)
    seen = 0
    line = stepped.line
    while line is not None:
        seen += 1
        line = stepped.resume()
    assert (seen, stepped.result) == (stops, 20)
    assert stepped.box.events.count(0) == stops, "each stop is closed in the black box"


def test_a_hold_at_a_line_costs_the_door_nothing(stepped):
    stepped.gate.hold(Hold(line="train.py:17"))
    assert not stepped.gate.armed


def test_steps(stepped):
    stepped.gate.hold(Hold(line="train.py:17"))
    stepped.run("main", 3)
    assert stepped.line == 17
    stepped.gate.remove(Hold(line="train.py:17"))
    assert stepped.step() == 18 and stepped.step(count=2) == 16
    assert stepped.step() == 17 and stepped.step("into") == 2 and stepped.step("out") == 18
    assert stepped.step("iteration") == 16
    assert stepped.step(to="train.py:3") == 3
    assert stepped.step("iteration") == 16, "the loop is in the caller"
    assert stepped.step(to="train.py:21") == 21 and stepped.step() is None
    assert stepped.result == 6


def test_a_hold_ends_a_step(stepped):
    stepped.gate.hold(Hold(line="train.py:16"))
    stepped.run("main", 1)
    assert stepped.line == 16 and stepped.step() == 17
    stepped.gate.hold(Hold(line="train.py:2"))
    assert stepped.step() == 2
    assert stepped.resume() == 16
    assert stepped.resume() is None


def test_a_step_over_a_yield_comes_to_the_caller(stepped):
    stepped.gate.hold(Hold(line="train.py:7", when="i == 1"))
    stepped.run("drawn")
    assert stepped.line == 7 and stepped.step() == 8 and stepped.step() == 26
    assert stepped.resume() is None and stepped.result == [0, 1, 2]


def test_a_generator_that_had_begun_and_a_coroutine(stepped):
    draw = stepped.names["numbers"](3)
    next(draw)
    stepped.names["rest"] = lambda: list(draw)
    stepped.gate.hold(Hold(line="train.py:7"))
    stepped.run("rest")
    assert stepped.line == 7 and stepped.resume() == 7 and stepped.resume() is None
    stepped.names["awaits"] = lambda: __import__("asyncio").run(stepped.names["waits"]())
    stepped.gate.hold(Hold(line="train.py:43"))
    stepped.run("awaits")
    assert stepped.line == 43 and stepped.step() == 44 and stepped.resume() is None and stepped.result == 2


def test_a_hold_that_comes_while_the_function_runs(stepped):
    stepped.gate.hold(Hold(line="train.py:20"))
    stepped.run("main", 6)
    assert stepped.line == 20
    stepped.gate.hold(Hold(line="train.py:18", when="step == 5"))
    assert stepped.resume() == 18 and stepped.resume() is None


def test_an_exception_that_nothing_handles_is_shown_with_its_frames(stepped, monkeypatch):
    stepped.gate.hold(Hold(exception=True))
    stepped.run("handles")
    assert stepped.line is None and stepped.error is None
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    stepped.thread = threading.Thread(target=stepped.names["fails"], args=(7,), daemon=True)
    stepped.thread.start()
    assert stepped.line == 32
    (held,) = stepped.gate.state()["held"]
    assert (held["kind"], held["function"], held["reason"]) == ("exception", "fails", "KeyError: 7")
    frame = next(frame for frame in frames_of(stepped.thread.ident) if is_user_frame(frame))
    assert (frame.f_locals["inner"], frame.f_locals["deep"]) == (7, 7), "its finally has not run"
    with pytest.raises(UsageError, match="exception"):
        stepped.gate.step_lines("over", 1, "")
    assert stepped.resume() is None
    stepped.thread.join(30)


def test_a_release_raises_at_the_line_and_not_again(stepped):
    stepped.gate.hold(Hold(line="train.py:17"))
    stepped.run("main", 5)
    assert stepped.line == 17
    stepped.release.wanted.append("released")
    stepped.gate.released()
    stepped.thread.join(30)
    assert stepped.line is None and isinstance(stepped.error, Released)


@pytest.mark.parametrize(
    ("when", "said"), [("nowhere > 1", "NameError"), ("[n for n in iter(int, 1)]", "no value within")]
)
def test_a_condition_that_raises_or_never_ends(stepped, when, said, monkeypatch):
    monkeypatch.setattr(conditions, "LIMIT_S", 0.2)
    stepped.gate.hold(Hold(line="train.py:17", when=when))
    stepped.run("main", 3)
    assert stepped.line is None and stepped.result == 6
    assert said in stepped.gate.state()["troubles"][0]


@pytest.mark.parametrize("when", ["time.sleep(60)", "time and (lock := Lock()).acquire() and lock.acquire()"])
def test_a_condition_that_waits_in_c_is_ended(stepped, when, monkeypatch):
    monkeypatch.setattr(conditions, "LIMIT_S", 0.2)
    stepped.names |= {"time": time, "Lock": threading.Lock}
    before = signal.signal(RELEASE_SIGNAL, lambda *_: None)
    try:
        stepped.gate.hold(Hold(line="train.py:17", when=when))
        assert stepped.names["main"](3) == 6
    finally:
        signal.signal(RELEASE_SIGNAL, before)
    assert "no value within 0.2 s; this hold is off for the run" in stepped.gate.state()["troubles"][0]


def test_a_condition_changes_no_variable(stepped):
    stepped.gate.hold(Hold(line="train.py:18", when="(total := 100) and False"))
    stepped.run("main", 3)
    assert stepped.line is None and stepped.result == 6


def test_threads_of_ddpnb_are_never_held(stepped):
    stepped.gate.hold(Hold(line="scaled()"))
    stepped.thread = threading.Thread(target=stepped.names["main"], args=(2,), name="ddpnb evaluation 1", daemon=True)
    stepped.thread.start()
    assert stepped.line is None


def test_a_tool_that_the_program_uses_is_left_alone(stepped):
    monitoring = sys.monitoring
    monitoring.use_tool_id(5, "another")
    try:
        stepped.gate.hold(Hold(line="train.py:17"))
        stepped.run("main", 1)
        assert stepped.line == 17 and stepped.resume() is None
        assert monitoring.get_tool(5) == "another"
    finally:
        monitoring.free_tool_id(5)
