"""Tasks that a panel has started: in threads, and what comes of it is said."""

from __future__ import annotations

import threading

import pytest

from ddpnb.errors import UsageError
from ddpnb.notebook.tasks import Tasks
from ddpnb.render.answers import Answer
from tests.notebook.waiting import Overtaken, until_done

LONG = 20.0


class Desk:
    """A panel that does nothing but wait for its work."""

    def __init__(self):
        self.work = Tasks(self._changed)
        self.seen = []
        self._moved = threading.Condition()

    def _changed(self):
        with self._moved:
            self.seen.append((self.work.busy, self.work.said, self.work.bad))
            self._moved.notify_all()

    def until(self, so):
        """Wait for a change after which it is so."""
        with self._moved:
            assert self._moved.wait_for(lambda: any(map(so, self.seen)), LONG), self.seen

    def settled(self):
        """Wait for the last change of all: nothing goes on."""
        with self._moved:
            assert self._moved.wait_for(lambda: len(self.seen) > 1 and not self.work.busy, LONG), self.seen
        return self.work.said, self.work.bad


@pytest.fixture
def desk():
    return Desk()


def raises(error):
    def work():
        raise error

    return work


def test_it_is_done_in_another_thread(desk):
    done = []
    desk.work.start("thinking", lambda: done.append(threading.current_thread()))
    desk.settled()
    assert done[0] is not threading.current_thread() and done[0].daemon


def test_what_goes_on_is_told_in_words_until_it_is_done(desk):
    gate = threading.Event()
    desk.work.start("holding", lambda: gate.wait(LONG))
    desk.work.start("stepping", lambda: None)
    desk.until(lambda seen: seen[0] == ("holding",))
    gate.set()
    assert desk.settled() == ("", False)


def test_a_text_that_comes_of_it_is_said(desk):
    desk.work.start("releasing", lambda: "Rank 1 is released (0.10 s).")
    desk.until(lambda seen: seen == ((), "Rank 1 is released (0.10 s).", False))


@pytest.mark.parametrize("value", [None, 3, object(), b"bytes", ""])
def test_whatever_is_no_text_is_not_said(desk, value):
    desk.work.start("thinking", lambda: value)
    assert desk.settled() == ("", False)


def test_an_error_of_ours_is_said_as_it_is(desk):
    desk.work.start("holding", raises(UsageError("there is no rank 99.", "There are 2.")))
    desk.until(lambda seen: seen == ((), "there is no rank 99.\n  There are 2.", True))


@pytest.mark.parametrize("error", [KeyError("x"), RuntimeError("no"), RecursionError("deep"), StopIteration(3)])
def test_any_other_error_is_said_with_what_was_done(desk, error):
    desk.work.start("drawing", raises(error))
    desk.until(lambda seen: seen == ((), f"drawing failed: {type(error).__name__}: {error}", True))


def test_after_an_error_one_may_try_again(desk):
    desk.work.start("drawing", raises(ValueError("once")))
    desk.until(lambda seen: seen[2])
    desk.work.start("drawing", lambda: "drawn")
    desk.until(lambda seen: seen == ((), "drawn", False))


def test_what_was_said_before_goes_when_something_begins(desk):
    desk.work.say("Saved.")
    gate = threading.Event()
    desk.work.start("thinking", lambda: gate.wait(LONG))
    assert desk.work.said == ""
    gate.set()
    desk.settled()


def test_a_second_click_does_nothing(desk):
    gate, times = threading.Event(), []
    for _ in range(5):
        desk.work.start("stepping", lambda: (times.append(1), gate.wait(LONG)))
    gate.set()
    desk.settled()
    assert len(times) == 1


def test_what_may_be_done_beside_itself_is(desk):
    all_there = threading.Barrier(3)
    for _ in range(3):
        desk.work.start("making a step", lambda: all_there.wait(LONG) and None, again=True)
    assert desk.settled() == ("", False)
    assert not desk.work.busy


def test_of_several_that_go_on_one_name_is_shown_until_the_last_is_done(desk):
    gates = [threading.Event(), threading.Event()]
    for gate in gates:
        desk.work.start("releasing", lambda gate=gate: gate.wait(LONG) and None, again=True)
    gates[0].set()
    assert desk.work.busy == ("releasing",)
    gates[1].set()
    desk.settled()


def test_clicks_from_many_threads_are_done_once():
    desk, gate, times = Desk(), threading.Event(), []
    together = threading.Barrier(16)

    def click():
        together.wait(LONG)
        desk.work.start("stepping", lambda: (times.append(1), gate.wait(LONG)))

    clicking = [threading.Thread(target=click) for _ in range(16)]
    for one in clicking:
        one.start()
    for one in clicking:
        one.join(LONG)
    gate.set()
    desk.settled()
    assert len(times) == 1


def test_many_at_once_leave_nothing_behind(desk):
    for number in range(50):
        desk.work.start(f"work {number % 5}", lambda: None, again=True)
    desk.settled()
    assert desk.work.busy == ()


def test_an_answer_stays_when_it_comes_before_the_progress_is_drawn():
    shown = []
    show = Overtaken(lambda busy, said: shown.append((busy, said)), lambda busy, _: bool(busy))
    tasks = Tasks(lambda: show(tasks.busy, tasks.said))
    tasks.start("writing the script", lambda: show.begun.wait(LONG) and "Written.")
    until_done(tasks)
    assert shown[-1] == ((), "Written.")


def test_progress_is_shown_as_long_as_its_action_is_in_progress(desk):
    gate = threading.Event()
    desk.work.start("launching", lambda: gate.wait(LONG) and "Launched.")
    desk.work.progress("launching", "starting 4 ranks: 1 s")
    assert desk.work.busy == desk.work.answer("").busy == ("starting 4 ranks: 1 s",)
    gate.set()
    assert desk.settled() == ("Launched.", False)
    desk.work.progress("launching", "starting 4 ranks: 2 s")
    assert (desk.work.busy, desk.work.said) == ((), "Launched.")
    gate.clear()
    desk.work.start("launching", lambda: gate.wait(LONG))
    assert desk.work.busy == ("launching",)
    gate.set()


def test_what_is_done_is_seen_with_its_answer():
    """Whoever sees that nothing is in progress any more finds the answer drawn."""
    drawn, gate = [], threading.Event()
    tasks = Tasks(lambda: drawn.append(tasks.said))
    tasks.start("thinking", lambda: gate.wait(LONG) and "Thought.")
    with tasks.drawing:
        gate.set()
        assert tasks.busy == ("thinking",)
    until_done(tasks)
    assert drawn[-1] == "Thought."


def test_a_question_is_dropped_with_the_state_in_which_it_was_asked(desk):
    for place, answer in (("saved", Answer((), "Saved.")), ("asked", Answer((), "Click again.", asks=True))):
        desk.work.start(place, lambda answer=answer: answer, place)
        desk.until(lambda _, place=place: desk.work.answer(place).said)
    desk.work.withdraw(lambda answer: answer.asks)
    assert (desk.work.answer("saved").said, desk.work.answer("asked").said) == ("Saved.", "")
