"""Code that is hard to step through: recursion, decorators, coroutines, generated code, locks, threads, and holds that come and go meanwhile."""

from __future__ import annotations

import sys
import threading

import pytest

from ddpnb.errors import Released
from ddpnb.recorder.stacks.evaluation import evaluate
from ddpnb.recorder.stacks.user_frames import looked_at
from ddpnb.recording.holds import Hold
from tests.recorder.holds.test_lines import Stepped

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 does not report lines")

PROGRAM = """\
import asyncio, functools, json, threading, time
lock = threading.Lock()

def doubled(function):
    @functools.wraps(function)
    def inner(*args):
        got = function(*args)                   # inner
        return 2 * got
    return inner

@doubled
def decorated(n):
    return n + 1                                # decorated

def deep(n):
    if n == 0:                                  # deep
        return 1
    below = deep(n - 1)                         # recurses
    return n * below                            # multiplies

def calls():
    got = decorated(1)                          # calls
    return got                                  # called

async def ticks(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield i                                 # ticks

async def summed():
    total = 0
    async for one in ticks(3):
        total += one                            # sums
    return total

def in_a_loop():
    return asyncio.run(summed())

def generated():
    exec(compile("a = 1\\nb = a + 1\\nout.append(b)", "<made>", "exec"), {"out": out})
    return out

out = []

def locked():
    with lock:
        inside = 1                              # locked
    return inside

def of_library():
    return json.dumps({"a": 1})

def worker(items, done):
    for item in items:
        done.append(item * 2)                   # worker

def with_a_thread():
    done = []
    one = threading.Thread(target=worker, args=([1, 2], done), name="loader")
    one.start()
    while one.is_alive():
        time.sleep(0.002)
    return done

def last():
    a = 1
    return a                                    # last

def slow(n):
    for i in range(n):
        time.sleep(0.01)                        # slow
    return n
"""


def at(mark):
    return next(number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith(f" # {mark}"))


def place(mark):
    return Hold(line=f"train.py:{at(mark)}")


@pytest.fixture
def stepped(tmp_path):
    made = Stepped(tmp_path, PROGRAM)
    yield made
    made.gate.remove(None)
    made.gate.resume()
    made.release.wanted.append("over")
    made.gate.released()
    if made.thread is not None:
        made.thread.join(30)
        assert not made.thread.is_alive()
    assert sys.monitoring.get_tool(5) is None


def stop(stepped, mark, function, *args):
    stepped.gate.hold(place(mark))
    stepped.run(function, *args)
    assert stepped.line == at(mark)
    return stepped


def test_a_step_stays_in_its_call_of_a_recursion(stepped):
    stop(stepped, "recurses", "deep", 3)
    stepped.gate.remove(place("recurses"))
    assert stepped.step() == at("multiplies"), "over the calls within"
    assert stepped.step("out") is None and stepped.result == 6


def test_a_step_out_of_a_recursion_comes_to_the_call_around(stepped):
    stop(stepped, "deep", "deep", 2)
    assert stepped.resume() == at("deep")
    stepped.gate.remove(place("deep"))
    assert stepped.step("out") == at("multiplies") and evaluate("n", 0, 5, {})["value"] == 2
    assert stepped.resume() is None


def test_a_step_into_a_decorated_function_comes_to_it_by_its_wrapper(stepped):
    stop(stepped, "calls", "calls")
    assert stepped.step("into") == at("inner") and stepped.step("into") == at("decorated")
    assert stepped.step("out") == at("inner") + 1 and stepped.step("out") == at("called")
    assert stepped.resume() is None and stepped.result == 4


def test_an_async_generator_and_who_draws_from_it(stepped):
    stop(stepped, "ticks", "in_a_loop")
    assert stepped.step() == at("sums")
    stepped.gate.remove(place("ticks"))
    stepped.gate.hold(place("sums"))
    assert [stepped.resume(), stepped.resume(), stepped.resume()] == [at("sums"), at("sums"), None]
    assert stepped.result == 3


def test_generated_code_has_no_line_to_stop_at_and_runs(stepped):
    stepped.gate.hold(Hold(line="train.py:2"))
    stepped.run("generated")
    assert stepped.line is None and stepped.result == [2]


def test_a_line_in_a_library_is_held_where_its_folder_is_named(stepped):
    stepped.gate.hold(Hold(line="json/__init__.py:dumps()"))
    stepped.run("of_library")
    assert stepped.line is not None
    assert stepped.gate.state()["held"][0]["function"] == "dumps"
    assert stepped.resume() is None and stepped.result == '{"a": 1}'


def test_a_thread_that_needs_a_lock_of_a_held_one_waits_and_continues(stepped):
    stop(stepped, "locked", "locked")
    assert "no answer within 0.2 s" in evaluate("locked()", 0, 0.2, stepped.names)["error"]
    assert stepped.gate.state()["held"], "it is still held"
    assert stepped.resume() is None and stepped.result == 1
    assert not stepped.names["lock"].locked() or stepped.names["lock"].acquire(timeout=10)


def test_another_thread_is_held_looked_at_and_stepped_while_the_main_thread_runs(stepped):
    stepped.gate.hold(place("worker"))
    stepped.run("with_a_thread")
    assert stepped.line == at("worker")
    (held,) = stepped.gate.state()["held"]
    assert held["thread"] == "loader" and looked_at() != stepped.thread.ident
    assert evaluate("item", 0, 5, {})["value"] == 1
    assert stepped.step() == at("worker") - 1 and stepped.step() == at("worker")
    assert evaluate("(item, done)", 0, 5, {})["text"] == "(2, [2])"
    assert stepped.resume() is None and stepped.result == [2, 4]
    event = next(one for one in stepped.box.events if one != 0)
    assert event.thread == "loader" and event.native_id


def test_a_second_hold_at_the_line_and_one_that_is_removed_while_held(stepped):
    stop(stepped, "slow", "slow", 3)
    stepped.gate.hold(Hold(line=f"train.py:{at('slow')}", when="i == 2"))
    stepped.gate.hold(place("slow"))
    assert len(stepped.gate.state()["holds"]) == 2, "the same hold twice is one"
    stepped.gate.remove(place("slow"))
    assert stepped.gate.state()["held"], "it stays held"
    assert stepped.resume() == at("slow") and evaluate("i", 0, 5, {})["value"] == 2
    assert stepped.resume() is None


def test_a_step_at_the_end_of_the_program_ends_it(stepped):
    stop(stepped, "last", "last")
    assert stepped.step() is None and stepped.result == 1
    assert stepped.gate.state()["held"] == []


def test_a_release_while_a_step_is_on_its_way_ends_it(stepped):
    stop(stepped, "slow", "slow", 200)
    stepped.gate.remove(place("slow"))
    assert stepped.gate.step_lines("over", 1, "train.py:last()") is False, "it is still on its way"
    stepped.release.wanted.append("released")
    stepped.gate.released()
    stepped.gate.end_of_run()
    assert stepped.gate.state()["held"] == []
    stepped.names["time"].sleep(0.05)
    assert stepped.gate.state()["held"] == [] and sys.monitoring.get_tool(5) is None


def test_two_who_step_at_once_step_one_after_the_other_or_are_refused(stepped):
    stop(stepped, "slow", "slow", 3)
    said = []

    def step():
        said.append(stepped.gate.step_lines("over", 1, ""))  # None: it was not held any more

    others = [threading.Thread(target=step) for _ in range(2)]
    for one in others:
        one.start()
    for one in others:
        one.join(30)
    assert len(said) == 2 and {*said} <= {True, False, None}
    assert stepped.line in (at("slow"), at("slow") - 1)
    stepped.gate.remove(None)
    assert stepped.resume() is None and stepped.result == 3


def test_all_holds_of_others_can_be_removed(stepped):
    stop(stepped, "slow", "slow", 3)
    stepped.gate.hold(Hold(before=("all_reduce",)))
    stepped.gate.remove(None)
    assert stepped.gate.state()["holds"] == [] and not stepped.gate.armed
    assert stepped.resume() is None


def test_a_release_raises_in_a_held_thread_and_its_lock_is_free(stepped):
    stop(stepped, "locked", "locked")
    stepped.release.wanted.append("released")
    stepped.gate.released()
    stepped.thread.join(30)
    assert isinstance(stepped.error, Released) and not stepped.names["lock"].locked()
