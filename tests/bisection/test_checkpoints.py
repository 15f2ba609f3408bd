"""Between which numbered checkpoints a failure begins, from handwritten recordings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.bisection.checkpoints import checkpoints
from ddpnb.model.ending import Ending
from ddpnb.model.recording import Recording
from tests.bisection.test_steps import thinned
from tests.rules.recordings import Rank, line, record

AT = line(40)


def passing(rank, *names):
    """A rank that passes checkpoints, each name on a line of its own."""
    for name in names:
        number = 1 + sum(1 for event in rank._history if event.title == "checkpoint")
        visit = 1 + sum(1 for event in rank._history if event.title == "checkpoint" and event.name == name)
        rank.passes(number, name, line(10 + ord(name[0])), visit=visit)
    return rank


def hung(zero, one):
    return record(
        passing(Rank(0, 2), *zero).waits("all_reduce", AT), passing(Rank(1, 2), *one).finishes(),
    )  # fmt: skip


def parted(steps=6, at=4, last="done", every=1):
    """Ranks that pass a checkpoint after every few steps; one of them holds something else from a step on."""

    def rank(number):
        one = passing(Rank(number, 2).wraps(), "wrapped")
        for step in range(1, steps + 1):
            one.forward(AT).backward(AT).gradients(AT)
            if (number, step) == (1, at):
                one.drifts({"fc.bias": 9})
            one.updated(AT)
            if step % every == 0:
                passing(one, f"{step} steps")
        return (passing(one, last) if last else one).finishes()

    return record(rank(0), rank(1))


def test_a_hang_is_between_two_checkpoints():
    located = checkpoints(hung("abcd", "ab"))
    assert (located.result.last_good, located.result.first_bad) == ("b", "c")
    assert located.facts == {"last_passed": {"0": "d", "1": "b"}, "missing": [1]}
    assert located.lines[0] == "The ranks stop after checkpoint 2 (b), which all ranks passed."
    assert located.lines[1].startswith("Rank 1 passed checkpoint 2 (b) last")
    assert f"Not passed by rank 1: checkpoint 3 (c), line {10 + ord('c')}." in located.lines


def test_a_hang_before_the_first_and_after_the_last():
    located = checkpoints(hung("ab", ""))
    assert (located.places, located.lines[0]) == (("start", "a"), "The ranks stop before any that all ranks passed.")
    assert checkpoints(hung("ab", "ab")).places == ("b", "end")


def test_a_crash():
    recording = hung("abc", "ab")
    ending = Ending("raised", 1, "ValueError", "no")
    ranks = {**recording.ranks, 1: replace(recording.ranks[1], ending=ending)}
    assert checkpoints(replace(recording, ranks=ranks)).places == ("b", "c")


def test_one_that_only_some_ranks_pass_bounds_nothing():
    assert checkpoints(hung("axbc", "ab")).places == ("b", "c")


def test_names_that_come_again_have_a_number():
    assert checkpoints(hung("assss", "ass")).places == ("s #3", "s #4")


def test_a_name_that_means_something_else_has_a_number():
    ranks = [Rank(0, 2).passes(1, "start", line(5)).waits("barrier"), Rank(1, 2).passes(1, "start", line(5)).finishes()]
    assert checkpoints(record(*ranks)).places == ("start #1", "end")


def test_a_divergence_is_between_two_checkpoints():
    located = checkpoints(parted())
    assert (located.result.last_good, located.result.first_bad) == ("3 steps", "4 steps")
    assert located.lines[0] == (
        "The replicas were equal after checkpoint 4 (3 steps), and differ before checkpoint 5 (4 steps)."
    )
    assert "optimizer step 4" in located.lines[1]
    assert located.facts["sides"] == [[0], [1]] and located.facts["last_passed"] == {"0": "3 steps", "1": "3 steps"}
    assert located.looks is None


def test_a_divergence_before_the_first_and_after_the_last():
    located = checkpoints(parted(steps=4, last=""))
    assert located.places == ("3 steps", "4 steps")
    located = checkpoints(parted(steps=4, every=3, last=""))
    assert located.places == ("3 steps", "end") and "at the end: no later one was passed" in located.lines[0]
    ranks = [Rank(n, 2).drifts({"fc.bias": n}).wraps().trains(2, AT) for n in range(2)]
    located = checkpoints(record(*(passing(one, "a", "b").finishes() for one in ranks)))
    assert located.places == ("start", "a") and located.lines[0] == "The replicas differ before checkpoint 1 (a)."


def test_ranks_that_still_train():
    def rank(number):
        one = passing(Rank(number, 2).wraps(), "wrapped")
        return passing(one.trains(2, AT).drifts({"fc.bias": number}).forward(AT), "later")

    assert checkpoints(record(rank(0), rank(1))).places == ("wrapped", "later")


def test_steps_that_were_not_looked_at_leave_several():
    located = checkpoints(thinned(parted(), lambda step: step % 4 == 0))
    assert located.places == ("wrapped", "1 steps", "2 steps", "3 steps", "4 steps")
    assert located.looks == (0, 4)
    assert checkpoints(thinned(parted(every=9), lambda step: step % 4 == 0)).looks is None  # there is none in between


def test_nothing_fails():
    located = checkpoints(parted(at=99))
    assert located.result.outcome == "nothing fails" and "passed checkpoint 8 (done) last" in located.lines[0]


def test_what_is_missing_is_said():
    assert "ddpnb.checkpoint" in checkpoints(hung("", "")).missing
    assert "ddpnb.checkpoint" in checkpoints(Recording(2, {})).missing


def test_checkpoints_that_were_not_kept_are_said():
    def loop(number, last):
        one = Rank(number, 2)
        for step in [*range(1, 65), *range(last - 191, last + 1)]:
            one.passes(step, f"step {step}", line(9), visit=step)
        return one

    located = checkpoints(record(loop(0, 1000).waits("all_reduce", AT), loop(1, 300).finishes()))
    assert located.places[1] == "step 809"
    assert located.lines[-1] == "Between checkpoints 64 and 809 some were passed that are not kept."


@pytest.mark.parametrize("name", ["", "x" * 200])
def test_any_name(name):
    ranks = [Rank(0, 2).passes(1, name, line(5)).waits("all_reduce"), Rank(1, 2).finishes()]
    assert checkpoints(record(*ranks)).result.first_bad == (name or "checkpoint 1")
