"""The gate, without a process group: who is stopped, and who is let go on."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from ddpnb.errors import Released
from ddpnb.recorder.holds.breakpoints import AtDoor, Gate
from ddpnb.recording.calls import Group
from ddpnb.recording.holds import Hold

WORLD = Group((0, 1), name="0", label="default_pg")
PART = Group((0, 2), name="3")


@pytest.fixture
def gate():
    release = SimpleNamespace(wanted=[], exception=lambda: Released("released"))
    return Gate(release)


def call(op="all_reduce", seq=1, group=WORLD, **variables):
    code = SimpleNamespace(co_filename="/a/train.py", co_name="main")
    frame = SimpleNamespace(f_code=code, f_lineno=9, f_globals={"limit": 3}, f_locals=variables)
    return AtDoor(op, seq, group, frame)


@pytest.mark.parametrize(
    ("hold", "stops"),
    [
        (Hold(("all_reduce",)), True),
        (Hold(("broadcast",)), False),
        (Hold(seq=2), False),
        (Hold(seq=1), True),
        (Hold(site="train.py:9"), True),
        (Hold(site="train.py:8"), False),
        (Hold(group="default_pg"), True),
        (Hold(group="0,1"), True),
        (Hold(group="[0, 1]"), True),
        (Hold(group="0,2"), False),
        (Hold(when="step > limit"), True),
        (Hold(when="any(step == one for one in (4, 5))"), True),
        (Hold(when="step < limit"), False),
        (Hold(("all_reduce",), 1, "main", "default_pg", "step == 4"), True),
    ],
)
def test_what_a_hold_means(gate, hold, stops):
    assert not gate.armed
    gate.hold(hold)
    assert gate.armed
    assert gate.stops(call(step=4)) is stops


def test_a_condition_that_raises_stops_nobody_and_is_told(gate):
    gate.hold(Hold(when="nowhere > 1"))
    assert not gate.stops(call())
    assert "NameError" in gate.state()["troubles"][0]


def test_a_call_without_a_frame(gate):
    gate.hold(Hold(site="train.py"))
    gate.hold(Hold(when="True"))
    assert not gate.stops(AtDoor("barrier", 1, PART, None))


class Passing:
    """A thread that makes calls, one after the other."""

    def __init__(self, gate, calls=6):
        self.gate, self.made, self.error = gate, [], None
        self.thread = threading.Thread(target=self.run, args=(gate, calls), daemon=True)
        self.thread.start()

    def run(self, gate, calls):
        try:
            for seq in range(1, calls + 1):
                one = call(seq=seq, step=seq)
                if gate.stops(one):
                    gate.wait(one)
                self.made.append(seq)
        except Released as error:
            self.error = error

    def stands_after(self, count):
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and not (len(self.made) == count and self.stands):
            time.sleep(0.005)
        time.sleep(0.05)
        return len(self.made) == count and self.stands

    @property
    def stands(self):
        return not self.thread.is_alive() or any(
            held["seq"] == len(self.made) + 1 for held in self.gate.state()["held"]
        )


def test_pause_step_and_resume(gate):
    gate.hold(Hold())
    passing = Passing(gate)
    assert passing.stands_after(0) and gate.state()["held"][0]["op"] == "all_reduce"
    gate.step(1)
    assert passing.stands_after(1)
    gate.step(3)
    assert passing.stands_after(4)
    gate.resume()
    assert passing.stands_after(6) and not gate.armed


@pytest.mark.parametrize("goes_on", [lambda gate: gate.step(1), lambda gate: gate.resume()], ids=["step", "resume"])
def test_a_call_that_goes_on_is_not_held_any_more_although_its_thread_has_not_run_yet(gate, goes_on):
    kinds: list[str] = []
    gate._clock = SimpleNamespace(begin=lambda: kinds.append("held"), end=lambda: kinds.append("resumed"))
    gate.hold(Hold())
    one, marked = call(), []
    one.marks = marked.append
    assert gate.stops(one)
    thread = threading.Thread(target=gate.wait, args=(one,), daemon=True)
    thread.start()
    deadline = time.monotonic() + 240
    while not gate.state()["held"] and time.monotonic() < deadline:
        time.sleep(0.005)
    assert marked == [True]
    with gate._condition:  # it wakes up when this is over
        goes_on(gate)
        assert marked == [True, False] and gate.state()["held"] == [] and thread.is_alive()
    thread.join(30)
    assert not thread.is_alive() and marked == [True, False]
    assert kinds == ["held", "resumed"]


def test_a_hold_fits_again_after_a_resume(gate):
    gate.hold(Hold(when="step in (2, 5)"))
    passing = Passing(gate)
    assert passing.stands_after(1)
    gate.resume()
    assert passing.stands_after(4) and gate.armed
    gate.remove(Hold(when="step in (2, 5)"))
    assert passing.stands_after(4)  # who is held stays so
    gate.resume()
    assert passing.stands_after(6)


def test_whoever_is_released_is_let_through_with_an_exception(gate):
    gate.hold(Hold(seq=3))
    passing = Passing(gate)
    assert passing.stands_after(2)
    gate._release.wanted.append("why")
    gate.released()
    passing.thread.join(30)
    assert isinstance(passing.error, Released) and gate.state()["held"] == []


def test_no_call_is_issued_after_a_release_was_asked_for(gate):
    gate.step(2)  # not even one that a step allows
    gate._release.wanted.append("why")
    gate.released()
    assert gate.armed
    passing = Passing(gate)
    passing.thread.join(30)
    assert isinstance(passing.error, Released) and not passing.made
    gate.resume()
    gate._release.wanted.clear()
    assert not gate.stops(call()) and not gate.armed


def test_only_what_is_kept_outlives_a_run(gate):
    gate.hold(Hold(seq=1))
    gate.hold(Hold(seq=2), keep=True)
    gate.hold(Hold())
    gate.end_of_run()
    assert gate.state()["holds"] == ["before every call #2"] and not gate.state()["pause"]


def test_a_resume_opens_no_hold_that_is_reached_only_because_another_rank_continued(gate):
    gate.hold(Hold(when="step in (2, 5)"))
    passing = Passing(gate)
    assert passing.stands_after(1)
    gate.resuming()
    assert passing.stands_after(1) and gate.state()["held"]
    gate.resume()
    assert passing.stands_after(4)
    gate.resuming()
    late = Passing(gate)
    assert late.stands_after(1)
    gate.resume()
    assert passing.stands_after(6) and late.stands_after(1) and gate.state()["held"]


@pytest.mark.parametrize("hold", [Hold(when="resume() or True"), None], ids=["while a condition runs", "just before"])
def test_a_call_that_is_resumed_between_the_question_and_the_wait_goes_on(gate, hold):
    """The gate says that it stops a call, then the door marks the call as held, then it waits."""
    gate.hold(hold or Hold())
    made = []

    def pass_the_gate():
        at_door = call(resume=gate.resume)
        if gate.stops(at_door):
            if hold is None:
                gate.resume()
            gate.wait(at_door)
        made.append(at_door)

    thread = threading.Thread(target=pass_the_gate, daemon=True)
    thread.start()
    thread.join(10)
    assert made and not gate.state()["held"]
