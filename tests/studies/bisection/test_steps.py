"""The first optimizer step at which replicas differ, from handwritten recordings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.recording import Recording
from ddpnb.studies.bisection.steps import steps
from tests.rules.recordings import Rank, line, record
from tests.rules.training import tensor

AT = line(40)


def drifting(kind, at, odd=("fc.weight",), ranks=4, culprit=2, steps=8, **more):
    """Ranks that train; one of them holds something else from a point of a step on."""

    def rank(number):
        one = Rank(number, ranks).wraps(**more)
        values = dict.fromkeys(odd, 9)
        for step in range(1, steps + 1):
            off = number == culprit and step == at
            if off and kind == "forward":
                one.drifts(values)
            one.forward(AT).backward(AT).gradients(AT, odd=values if off and kind == "gradients" else None)
            if off:
                one.drifts(values)
            one.updated(AT)
        return one

    return record(*(rank(number) for number in range(ranks)))


def thinned(recording, keep):
    """As the replica watch samples: only where ``keep(step)`` says so."""
    ranks = {
        number: replace(one, samples=tuple(s for s in one.samples if keep(s.step)))
        for number, one in recording.ranks.items()
    }
    return replace(recording, ranks=ranks)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("forward", "in its forward, before any gradient was computed"),
        ("gradients", "in the gradients, just before its update"),
        ("updated", "after its update"),
    ],
)
def test_each_step_was_looked_at(kind, said):
    located = steps(drifting(kind, 6))
    result = located.result
    assert (result.outcome, result.first_bad, result.last_good, located.looks) == ("found", 6, 5, None)
    assert located.lines[0] == f"The replicas of Net differ first at optimizer step 6, {said}: fc.weight."
    assert "After step 5 all of their parameters were equal." in located.lines
    assert ("The gradients just before it were equal." in located.lines) == (kind == "updated")
    assert "By what they hold: ranks 0, 1 and 3 | rank 2." in located.lines
    assert located.lines[-1].endswith(f"at {AT}.")
    assert located.facts["in"] == {"updated": "update"}.get(kind, kind)
    assert (located.facts["sides"], located.facts["pair"]) == ([[0, 1, 3], [2]], [0, 2])
    assert located.facts["where"][0] == {"rank": 0, "file": AT.file, "line": 40, "function": "main"}


def test_steps_in_between_were_not_looked_at():
    located = steps(thinned(drifting("updated", 6), lambda step: step % 4 == 0))
    assert (located.looks, located.places) == ((4, 8), (4, 5, 6, 7, 8))
    assert located.result.outcome == "undecided" and located.result.candidates == (5, 6, 7, 8)
    assert located.lines[0].startswith("The replicas of Net differ at optimizer step 8, after its update")


def test_the_recording_of_the_closer_look_settles_it():
    closer = thinned(drifting("updated", 6), lambda step: step % 4 == 0 or 4 <= step <= 8)
    assert steps(closer).result.first_bad == 6


def test_equal_throughout():
    located = steps(drifting("updated", 99))
    assert located.result.outcome == "nothing fails" and located.looks is None
    assert "equal wherever they were looked at" in located.lines[0]


def test_they_differ_when_they_are_wrapped():
    ranks = [Rank(number, 2).drifts({"fc.bias": number}).wraps().trains(3, AT) for number in range(2)]
    located = steps(record(*ranks))
    assert (located.result.first_bad, located.result.last_good) == (0, "start")
    assert located.lines[0] == "The replicas of Net differ when they are wrapped: fc.bias."


def test_nothing_was_recorded_before_the_first_difference():
    """Without a wrapper a model is known from its first optimizer step on."""
    ranks = [Rank(number, 2).adopts(wrapper="").drifts({"fc.bias": number}) for number in range(2)]
    for number, one in enumerate(ranks):
        one.gradients(AT, odd={"fc.bias": number}).updated(AT)
    located = steps(record(*ranks))
    assert (located.result.first_bad, located.looks) == (1, None)
    assert "Nothing of them was recorded before that." in located.lines


def test_no_digest_before_the_first_difference_needs_a_look():
    """As on a GPU, where only every 64th step has digests."""
    recording = thinned(drifting("forward", 6), lambda step: step in (0, 7))
    ranks = {
        number: replace(one, samples=tuple(replace(s, digests=s.digests if s.step else {}) for s in one.samples))
        for number, one in recording.ranks.items()
    }
    located = steps(replace(recording, ranks=ranks))
    assert (located.looks, located.places) == ((0, 7), ("start", *range(8)))


def test_a_model_of_which_each_look_sees_a_part():
    """Equal is a step only if all parts were equal there or later."""
    recording = drifting("updated", 7, odd=("fc.bias",))
    ranks = {}
    for number, one in recording.ranks.items():
        looks = [
            replace(s, digests={k: v for k, v in s.digests.items() if (k == "fc.bias") == (s.step % 2 == 0)})
            for s in one.samples
            if s.step < 8 or s.kind == "updated"
        ]
        ranks[number] = replace(one, samples=tuple(looks))
    located = steps(replace(recording, ranks=ranks))
    assert (located.places, located.looks) == ((6, 7, 8), (6, 8))


def test_buffers_and_ignored_parameters_do_not_count():
    tensors = (tensor("fc.weight"), tensor("bn.running_mean", buffer=True), tensor("own", ignored=True))
    ranks = []
    for number in range(2):
        one = Rank(number, 2).wraps(*tensors)
        for _ in range(3):
            one.forward(AT, odd={"bn.running_mean": number, "own": number})
            one.gradients(AT, odd={"own": number})
            one.drifts({"own": number}).updated(AT)
        ranks.append(one)
    assert steps(record(*ranks)).result.outcome == "nothing fails"


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([Rank(0, 2), Rank(1, 2)], "no model was wrapped"),
        ([Rank(0, 2).wraps().trains(2), Rank(1, 2)], "only rank 0 has a model Net"),
        ([Rank(0, 2).wraps().trains(2), Rank(1, 2).wraps(tensor("other")).trains(2)], "different tensors of Net"),
    ],
)
def test_what_is_missing_is_said(ranks, said):
    located = steps(record(*ranks))
    assert located.result.outcome == "undecided" and said in located.missing


def test_an_empty_recording():
    assert "No digests" in steps(Recording(2, {})).missing


def test_the_earliest_of_several_models():
    def rank(number):
        one = Rank(number, 2).wraps(number=0, module="G").wraps(number=1, module="D")
        for step in range(1, 5):
            for model in (0, 1):
                odd = {"fc.weight": number} if (model, step) == (1, 3) else None
                one.forward(AT, model=model, odd=odd).gradients(AT, model=model).updated(AT, model=model)
        return one

    located = steps(record(rank(0), rank(1)))
    assert located.result.first_bad == 3 and "of D differ" in located.lines[0]
