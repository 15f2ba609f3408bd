"""Start-up step by step: a row per step, a column per rank."""

from __future__ import annotations

import pytest

from ddpnb.recording.startup import STEPS, StartupState, StepState
from ddpnb.render import as_html, as_text, startup
from tests.render.reading import HOSTILE, Reading, harmless

DONE = StepState("done", 0.012)


def after(*names, of=4, **more):
    """All ranks have made these steps; ``more``: of rank 1 alone."""
    ranks = {rank: dict.fromkeys(names, DONE) for rank in range(of)}
    ranks[1] |= {name.replace("_", " "): state for name, state in more.items()}
    return StartupState(of, ranks)


def seen(state, size=4, notes=(), **more):
    return Reading(startup.startup(state, size, notes, **more))


def enabled(page):
    return {one["data-action"] for one in page.all("button") if "disabled" not in one}


def test_before_it_was_begun_there_is_one_button():
    assert seen(None).actions == [("begin", {"action": "begin"})]
    assert enabled(seen(None, enabled=False)) == set()


def test_a_row_per_step_and_a_column_per_rank():
    page = seen(after())
    assert page.labels == {"start-up of the ranks"}
    assert [words for words in page.texts if words in STEPS] == list(STEPS)
    assert len(page.all("td")) == 4 * len(STEPS)


@pytest.mark.parametrize(
    ("state", "words", "symbols"),
    [
        (StepState(), "not begun", 0),
        (StepState("running", 2.0), "running", 1),
        (DONE, "done in 12 ms", 1),
        (StepState("done", 3.25), "done in 3.2 s", 1),
        (StepState("failed", error="refused"), "failed", 1),
    ],
)
def test_every_state_of_a_step_has_its_words(state, words, symbols):
    cell = as_html.inline(startup._cell(StartupState(1, {0: {"device": state}}), 0, "device").parts)
    assert words in Reading(cell).text and len(Reading(cell).all("svg")) == symbols


def test_a_step_that_waits_says_for_whom():
    page = seen(after("environment", "device", store=StepState("running", 1.0)))
    assert "waits: 0 · 1.0 s" in page.text


def test_of_many_that_are_waited_for_some_are_named():
    state = StartupState(9, {0: {"store": StepState("running", 1.0)}})
    assert "waits: 1, 2, 3, 4… · 1.0 s" in seen(state, 9).text


def test_why_a_step_failed_is_told():
    page = seen(after(store=StepState("failed", error="no route to host")), notes=["rank 1: failed at store"])
    assert page.all("td")[4 * STEPS.index("store") + 1]["title"] == "no route to host"
    assert "rank 1: failed at store" in page.text


def test_the_form_steps_the_ranks_that_are_ticked():
    page = seen(after("environment"))
    assert page.all("form")[0]["data-action"] == "step these"
    assert [one["value"] for one in page.all("input")] == ["0", "1", "2", "3"]
    assert enabled(page) == {"step all", "step these", "run to the end", "begin"}
    assert "step all (device)" in page.text


def test_while_a_step_is_made_others_may_be_made_beside_it():
    assert enabled(seen(after(), busy=True)) == {"step these"}
    assert enabled(seen(after(), enabled=False)) == set()


def test_when_all_is_done_one_can_begin_anew():
    assert enabled(seen(after(*STEPS))) == {"begin"}


def test_many_ranks_are_bounded():
    page = seen(after(of=500), 500)
    assert "first 16 of 500 ranks shown" in page.text
    assert page.named("ranks")["placeholder"] == "all, or 0-3,8"


def test_facts_of_the_steps():
    state = StartupState(2, {0: {"device": StepState("done", facts={"device": "cuda:0", "free": 0})}})
    page = seen(state, 2)
    assert "facts of device" in page.labels and "cuda:0" in page.text
    assert [one["data-key"] for one in page.all("details")] == ["facts"]


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_nothing_of_a_rank_is_taken_for_html(hostile):
    failed = StepState("failed", facts={hostile: hostile, "list": [hostile]}, error=hostile)
    harmless(startup.startup(StartupState(1, {0: {"store": failed}}), 1, [hostile]))


def test_the_table_as_text_and_for_a_notebook():
    state = after("environment", of=2, device=StepState("failed", 0.5, error="\x1b[31mno device"))
    lines = as_text.text(*startup.document(state)).splitlines()
    assert lines[0].split() == ["step", "rank", "0", "rank", "1"]
    assert lines[2].split() == ["device", "·", "✗", "failed", "0.50", "s"]
    assert "rank 1: failed at device" in lines[-1] and "\x1b" not in as_text.text(*startup.document(state))
    assert "done in 12 ms" in Reading(as_html.html(*startup.document(state))).text


@pytest.mark.parametrize("hostile", HOSTILE)
def test_nothing_of_a_rank_is_taken_for_html_in_a_table(hostile):
    failed = StepState("failed", 1.0, {"<b>": hostile}, hostile)
    harmless(as_html.html(*startup.document(StartupState(2, {0: {"store": failed}, 1: {"store": failed}}))))
