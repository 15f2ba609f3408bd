"""A search as its user sees it: probes, answers, undo, log, confidence."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from ddpnb.errors import UsageError
from ddpnb.studies.bisection.search import MEASURED, Search, SearchResult
from ddpnb.studies.bisection.space import Component, Probe, RangeSpace, SetSpace
from ddpnb.studies.bisection.words import conclusion


def letters(names: str) -> SetSpace:
    return SetSpace([Component(name) for name in names])


def finish(search: Search, fails: Callable[[Probe], bool]) -> Search:
    while (probe := search.next_probe()) is not None:
        search.answer(probe, "bad" if fails(probe) else "good")
        assert len(search.trials) < 2000
    return search


def pair(probe: Probe) -> bool:
    return {"b", "e"} <= set(probe.on)


def test_a_pair():
    search = finish(Search(letters("abcdefgh")), pair)
    assert search.result is not None
    assert search.result.outcome == "found"
    assert search.result.minimal == ("b", "e")
    assert search.stated_confidence == 1
    assert [trial.probe for trial in search.trials].count(Probe(("b", "e"))) == 2
    assert search.trials[0].probe == Probe(tuple("abcdefgh"))
    assert search.trials[1].probe == Probe()


def test_several_causes():
    search = finish(Search(letters("abcdefgh")), lambda probe: pair(probe) or "h" in probe.on)
    assert search.result is not None
    assert set(search.result.causes) == {("b", "e"), ("h",)}


def test_values_in_order():
    search = finish(Search(RangeSpace("step", range(9))), lambda probe: probe.at >= 6)
    assert search.result is not None
    assert (search.result.first_bad, search.result.last_good) == (6, 5)
    assert [trial.probe.at for trial in search.trials] == [
        8,
        0,
        4,
        6,
        5,
        6,
        5,
    ]  # the ends, halves, and both sides again


@pytest.mark.parametrize("space", [letters("abc"), RangeSpace("step", range(9))])
def test_a_start_that_works(space):
    search = finish(Search(space), lambda _: False)
    assert search.result is not None
    assert (search.result.outcome, len(search.trials)) == ("nothing fails", 1)


@pytest.mark.parametrize("space", [letters("abc"), RangeSpace("step", range(9))])
def test_a_harmless_configuration_that_fails(space):
    search = finish(Search(space), lambda _: True)
    assert search.result is not None
    assert (search.result.outcome, len(search.trials)) == ("always fails", 2)


def test_another_failure_is_not_the_one_searched_for():
    search = Search(letters("abcd"))
    while (probe := search.next_probe()) is not None:
        search.answer(probe, "bad" if {"b", "d"} <= set(probe.on) else "other" if "b" in probe.on else "good")
    assert search.result is not None
    assert search.result.minimal == ("b", "d")


def test_where_nothing_but_the_start_can_be_judged_it_is_undecided():
    search = Search(SetSpace([Component("a"), Component("b")]))
    while probe := search.next_probe():
        search.answer(probe, "bad" if len(probe.on) == 2 else "other")
    assert search.result is not None and search.result.outcome == "undecided"
    assert search.result.candidates == ("a", "b")


def test_a_single_component_is_found():
    search = Search(SetSpace([Component("a")]))
    while probe := search.next_probe():
        search.answer(probe, "bad" if probe.on else "good")
    assert search.result is not None and search.result.causes == (("a",),)


def test_a_second_try_decides_over_another_failure():
    search = Search(letters("ab"))
    for probe, answers in (
        (Probe(("a", "b")), ["bad"]),
        (Probe(), ["other", "good"]),
        (Probe(("a",)), ["other", "bad"]),
    ):
        assert search.next_probe() == probe
        for answer in answers:
            search.answer(probe, answer)
    assert search.next_probe() == Probe(("b",))  # all others: a fails alone, and has failed twice already


def test_a_range_whose_border_cannot_be_judged():
    search = Search(RangeSpace("commit", list("abcdefgh"), "git"))
    while (probe := search.next_probe()) is not None:
        search.answer(probe, "skip" if probe.at in "de" else "bad" if str(probe.at) >= "f" else "good")
    assert search.result is not None
    assert (search.result.outcome, search.result.candidates) == ("undecided", ("d", "e", "f"))


def test_a_range_whose_border_cannot_be_judged_says_what_works():
    search = Search(RangeSpace("--bs", range(4, 10)))
    while (probe := search.next_probe()) is not None:
        search.answer(probe, "bad" if probe.at >= 8 else "other" if probe.at in (6, 7) else "good")
    assert search.result == SearchResult("undecided", last_good=5, candidates=(6, 7, 8))
    assert conclusion(search.result, search) == (
        "Undecided: 5 works and 8 fails; those between could not be judged: 6, 7."
    )


def test_a_harmless_value_that_cannot_be_judged_is_not_said_to_work():
    search = Search(RangeSpace("commit", list("abc"), "git"))
    while (probe := search.next_probe()) is not None:
        search.answer(probe, "other" if probe.at == "a" else "bad")
    assert search.result == SearchResult("undecided", candidates=("a", "b"))
    assert conclusion(search.result, search) == "Undecided: b fails; those between could not be judged: a."


@pytest.mark.parametrize("culprit", ["a", "b", "c", "d"])
@pytest.mark.parametrize("other", ["x", "y"])
def test_what_requires_a_cause_is_not_taken_for_it(culprit, other):
    chain = [Component("a"), Component("b", "", ("a",)), Component("c", "", ("b",)), Component("d", "", ("c",))]
    for components in ([Component("x"), *chain, Component("y")], [*chain, Component("y"), Component("x")]):
        space = SetSpace(components)
        search = finish(Search(space), lambda probe: {culprit, other} <= set(probe.on))
        assert search.result is not None
        assert [set(cause) for cause in search.result.causes] == [{*"abcd"[: "abcd".index(culprit) + 1], other}]


def test_requirements_are_kept():
    space = SetSpace([Component("workers"), Component("x"), Component("pinned", requires=("workers",))])
    search = finish(Search(space), lambda probe: "pinned" in probe.on)
    assert search.result is not None
    assert search.result.minimal == ("workers", "pinned")
    assert all("workers" in trial.probe.on for trial in search.trials if "pinned" in trial.probe.on)


def test_a_ladder_is_climbed_rung_by_rung_and_the_first_that_fails_is_narrowed_down():
    names = "abcdefgh"
    space = SetSpace([Component(name) for name in names], [("one", "ab"), ("two", "cde"), ("three", "fgh")])
    search = finish(Search(space), lambda probe: {"b", "d"} <= set(probe.on))
    assert [trial.probe for trial in search.trials[:4]] == [
        Probe(tuple(names)), Probe(), Probe(tuple("ab")), Probe(tuple("abcde")),
    ]  # fmt: skip
    assert search.result is not None
    assert search.result.minimal == ("b", "d")
    assert all(set(trial.probe.on) <= set("abcde") for trial in search.trials[3:-1])


def test_undo_asks_again():
    search = Search(letters("abcd"))
    search.answer(Probe(tuple("abcd")), "bad")
    before = search.next_probe()
    assert before is not None
    search.answer(before, "bad")
    assert search.undo().probe == before
    assert search.next_probe() == before
    search.undo()
    with pytest.raises(UsageError, match="no answer to undo"):
        search.undo()


def test_answers_continue_where_they_stopped():
    whole = finish(Search(letters("abcdefgh")), pair)
    for length in range(len(whole.trials)):
        again = Search(whole.space, trials=whole.trials[:length])
        assert again.next_probe() == whole.trials[length].probe
        assert finish(again, pair).trials == whole.trials


@pytest.mark.parametrize("arguments", [{"repeat": 0}, {"confidence": 1.0}, {"confidence": 0.1}])
def test_terms_that_make_no_sense_are_refused(arguments):
    with pytest.raises(UsageError):
        Search(letters("ab"), **arguments)


def test_an_answer_that_makes_no_sense_is_refused():
    search = Search(letters("ab"))
    with pytest.raises(UsageError, match="not a configuration"):
        search.answer(Probe(("z",)), "bad")
    with pytest.raises(UsageError, match="no answer 'perhaps'"):
        search.answer(Probe(), "perhaps")  # type: ignore[arg-type]


# -- failures that do not always happen


def test_a_failure_that_does_not_come_again_is_measured():
    search = Search(letters("abcd"))
    while (probe := search.next_probe()) is not None and len(search.trials) < 400:
        fails = "b" in probe.on
        again = sum(1 for trial in search.trials if trial.probe == probe)
        search.answer(probe, "bad" if fails and (again != 1 or len(probe.on) == 4) else "good")
    assert search.sometimes
    assert search.result is not None
    assert search.result.minimal == ("b",)
    start = [trial for trial in search.trials if trial.probe == Probe(tuple("abcd"))]
    assert sum(trial.answer == "bad" for trial in start) >= MEASURED
    assert 0.99 <= search.stated_confidence < 1


@pytest.mark.parametrize("repeat", [1, None])
def test_a_failure_that_came_once_and_never_again_ends_undecided(repeat):
    search = Search(letters("abcd"), repeat)
    finish(search, lambda _: not search.trials)
    assert search.result is not None
    assert (search.result.outcome, search.result.seldom) == ("undecided", True)
    assert len(search.trials) < 50
    assert "1 of 31 probes" in conclusion(search.result, search)


def test_the_expected_number_of_probes_counts_repeats():
    chance = random.Random(5)
    search = Search(letters("abcd"), repeat=None)
    assert search.step.expected > 50
    expected = []
    while (probe := search.next_probe()) is not None:
        search.answer(probe, "bad" if {"a", "c"} <= set(probe.on) and chance.random() < 0.3 else "good")
        expected.append(len(search.trials) + search.step.expected)
    middle = expected[len(expected) // 2]
    assert middle / 2 < len(search.trials) < middle * 2


@pytest.mark.parametrize("kind", ["range", pytest.param("set", marks=pytest.mark.full)])
def test_a_failure_of_three_in_ten_is_found_in_99_of_100_searches(kind):
    chance = random.Random(3)
    right = 0
    for _ in range(100):
        if kind == "range":
            border = chance.randint(1, 63)
            search = finish(
                Search(RangeSpace("step", range(64)), repeat=None),
                lambda probe, border=border: probe.at >= border and chance.random() < 0.3,
            )
            right += search.result is not None and search.result.first_bad == border
        else:
            culprits = set(chance.sample("abcdefgh", chance.randint(1, 2)))
            search = finish(
                Search(letters("abcdefgh"), repeat=None),
                lambda probe, culprits=culprits: culprits <= set(probe.on) and chance.random() < 0.3,
            )
            right += search.result is not None and [set(cause) for cause in search.result.causes] == [culprits]
        assert search.stated_confidence >= 0.99
    assert right >= 99


def test_a_given_number_of_repeats_is_kept_and_its_confidence_said():
    chance = random.Random(1)
    search = finish(Search(letters("abcd"), repeat=6), lambda probe: "c" in probe.on and chance.random() < 0.6)
    assert search.result is not None
    assert search.result.minimal == ("c",)
    good = [trial.probe for trial in search.trials if trial.answer == "good"]
    assert good.count(Probe()) == 6
    assert 0 < search.stated_confidence < 1


def test_a_failure_that_never_comes_with_repeats():
    search = finish(Search(letters("ab"), repeat=None), lambda _: False)
    assert search.result is not None
    assert (search.result.outcome, len(search.trials)) == ("nothing fails", 30)
