"""The actions on the cards of findings, as a page would send them."""

from __future__ import annotations

import pytest

from ddpnb.notebook.findings import FindingActions
from ddpnb.notebook.widgets.parts import Card
from ddpnb.recording.findings import Diagnosis, Finding, FindingType
from ddpnb.render import card as render
from tests.render.reading import Reading

TWO = Diagnosis(
    "hang",
    findings=tuple(
        Finding(FindingType(code, name), f"{name}.")
        for code, name in (("DDP301", "collective-missing"), ("DDP999", "odd"))
    ),
    world_size=2,
)


@pytest.fixture
def desk():
    card, others = Card(TWO, headline=False), []
    FindingActions(card, lambda action, _: others.append(action))
    card.others = others
    return card


def does(card, action, number=0):
    card.on_action(action, {"number": str(number)})
    return Reading(card.html).text


def test_each_finding_has_buttons_and_a_static_card_has_none(desk):
    page = Reading(desk.html)
    assert [one["data-number"] for one in page.all("button") if one["data-action"] == "explain"] == ["0", "1"]
    assert [one["data-number"] for one in page.all("button") if one["data-action"] == "lesson"] == ["0"]
    assert "<button" not in render.html(TWO) and "<button" not in TWO._repr_html_()


def test_explain_opens_and_closes(desk):
    assert "See also" in does(desk, "explain")
    assert "See also" not in does(desk, "explain")
    does(desk, "explain")
    assert "See also" not in does(desk, "close finding")
    assert "There is no page for DDP999" in does(desk, "explain", 1)
    desk.show_diagnosis(Diagnosis("hang", findings=TWO.findings[:1], world_size=2))
    assert "See also" not in Reading(desk.html).text


def test_the_lesson_of_the_finding(desk):
    assert "what to look at" in does(desk, "lesson")
    closing = [action for action, _ in Reading(desk.html).actions if action in ("close story", "close finding")]
    assert closing == ["close story"]
    assert "what to look at" not in does(desk, "close story")


def test_other_actions_are_the_panels(desk):
    for action, number in (("why", 0), ("explain", 7), ("rank", "x")):
        desk.on_action(action, {"number": str(number)})
    assert desk.others == ["why", "explain", "rank"]


def test_an_answer_to_another_diagnosis_is_not_shown(desk):
    assert "what to look at" in does(desk, "lesson")
    desk.show_diagnosis(Diagnosis("hang", findings=TWO.findings, world_size=2))
    assert "what to look at" not in Reading(desk.html).text


def test_what_concerns_the_whole_run_is_not_on_each_card(desk):
    assert {one["data-action"] for one in Reading(desk.html).all("button")} == {"explain", "lesson"}
