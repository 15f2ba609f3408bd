"""The replicas: tensors by ranks, and what differs."""

from __future__ import annotations

import math

import pytest

from ddpnb.recording.findings import Finding, FindingType
from ddpnb.render import as_html
from ddpnb.render.replicas import replicas, since
from tests.render.reading import HOSTILE, Reading, harmless

WEIGHT = ("fc.weight", ((0, 2, 3), (1,)), 0.25, {0: 1.5, 1: 1.75})


def seen(differences=(WEIGHT,), compared=10, **more):
    return Reading(as_html.html(*replicas(differences, compared, **more)))


def test_what_differs_on_whom_and_by_how_much():
    page = seen(since="since step 7")
    assert "1 of 10 tensors differ, compared byte by byte, now. since step 7" in page.text
    assert "fc.weight1.5side B: 1.75samesame0.25" in page.text
    assert page.all("th")[-1]["title"] == "ranks 0, 2 and 3 | rank 1"
    assert page.labels == {"tensors that differ, with their norm on each rank"}


def test_the_odd_side_has_a_word_and_not_a_colour_alone():
    assert [one.get("class") for one in seen().all("td")] == [None, "differs", None, None, None]
    assert seen().text.count("side B") == 1 and len(seen().all("svg")) == 1


def test_every_side_has_its_letter():
    page = seen([("w", ((0,), (1,), (2,)), None, {})])
    assert "side B: other" in page.text and "side C: other" in page.text and "not compared" in page.text


def test_a_rank_that_was_not_compared_has_an_empty_cell():
    assert [one for one in seen([WEIGHT, ("w", ((0,), (4,)), 1.0, {})]).texts if one == "side B: "] != []


def test_replicas_that_are_the_same():
    assert "The replicas are identical: 10 tensors, from the last samples of the run." in seen((), exact=False).text


def test_nothing_to_compare():
    assert "no rank has a wrapped model" in seen((), 0, notes=["rank 1 does not answer"]).text
    assert "rank 1 does not answer" in seen((), 0, notes=["rank 1 does not answer"]).text


def test_many_tensors_are_bounded():
    assert "and 68 more tensors" in seen([(f"w{n}", ((0,), (1,)), 0.0, {}) for n in range(100)]).text


def test_of_many_ranks_the_odd_ones_are_among_the_shown():
    others = tuple(rank for rank in range(1000) if rank != 777)
    page = seen([("w", (others, (777,)), 1.0, {})])
    assert "777" in page.texts and "side B: " in page.texts
    assert "16 of 1000 ranks shown, differing ranks first" in page.text


def test_numbers_that_are_none():
    assert "nan" in seen([("w", ((0,), (1,)), math.inf, {0: math.nan, 1: math.inf})]).text


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_nothing_of_a_rank_is_taken_for_html(hostile):
    harmless(as_html.html(*replicas([(hostile, ((0,), (1,)), 1.0, {})], 3, since=hostile[:1000], notes=[hostile])))


DRIFT = FindingType("DDP405", "replica-drift")


def test_the_diagnosis_without_the_names_that_the_table_has():
    finding = Finding(
        DRIFT, summary="Rank 1 holds other parameters since forward 7: a.weight, b.", tensors=("a.weight", "b")
    )
    assert since(finding) == "Rank 1 holds other parameters since forward 7."
    assert since(Finding(DRIFT, summary="Replicas differ.")) == "Replicas differ." and since(None) == ""
