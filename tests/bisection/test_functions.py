"""The beginnings of a list of functions."""

from __future__ import annotations

import math

import pytest

from ddpnb.bisection.functions import PrefixSpace, RanksSpace, numbered, ranks_to_search
from ddpnb.bisection.search import Search
from ddpnb.bisection.space import Probe
from ddpnb.errors import UsageError
from ddpnb.render.bisection import conclusion, named


@pytest.mark.parametrize("count", [1, 2, 3, 8, 100])
def test_the_first_function_with_which_it_fails(count):
    names = [f"f{number}" for number in range(count)]
    for first in range(count):
        space = PrefixSpace(names)
        search = Search(space.space)
        while (probe := search.next_probe()) is not None:
            search.answer(probe, "bad" if f"f{first}" in space.trying(probe).command else "good")
        assert search.result.first_bad == f"f{first}"
        assert search.result.last_good == (f"f{first - 1}" if first else "none")
        ends = {space.space.start, space.space.harmless}
        between = [trial for trial in search.trials[:-2] if trial.probe not in ends]  # the last two confirm
        assert len(between) <= math.ceil(math.log2(count))


def test_a_probe_calls_a_beginning():
    space = PrefixSpace(["load", "train", "evaluate"])
    assert [space.trying(Probe(at=one)).command for one in ("none", "train")] == [(), ("load", "train")]
    assert space.trying(space.space.start).command == ("load", "train", "evaluate")
    assert (space.minimal([]), space.typed(space.trying(space.space.start))) == ([], "")


def test_a_function_that_comes_twice_has_a_number():
    assert numbered(["load", "step", "step", "load"]) == ["load", "step", "step #2", "load #2"]


def test_how_many_ranks():
    space = RanksSpace(["train"], 4)
    assert space.space.values == (1, 2, 3, 4)
    assert [space.trying(Probe(at=n)).own for n in (1, 4)] == [{"-n": "1"}, {"-n": "4"}]
    assert (space.trying(Probe(at=2)).command, space.minimal([]), space.typed(space.trying(Probe(at=2)))) == (
        ("train",),
        [],
        "",
    )


@pytest.mark.parametrize(("size", "said"), [(None, "does not say"), (1, "no smaller world"), (0, "no smaller world")])
def test_too_few_ranks(size, said):
    with pytest.raises(UsageError, match=said):
        ranks_to_search(size)


def test_no_function():
    with pytest.raises(UsageError, match="no function"):
        PrefixSpace([])


def test_words():
    space = PrefixSpace(["load", "train", "evaluate"])
    search = Search(space.space)
    assert [named(Probe(at=one), search) for one in space.space.values] == [
        "no function", "up to load", "up to train", "all functions",
    ]  # fmt: skip
    while (probe := search.next_probe()) is not None:
        search.answer(probe, "bad" if "load" in space.trying(probe).command else "good")
    assert conclusion(search.result, search) == ("It fails as soon as load is added; with no function at all it works.")
