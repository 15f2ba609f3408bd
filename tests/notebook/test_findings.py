"""The actions on the cards of findings, as a page would send them."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import ddpnb
from ddpnb.notebook import findings
from ddpnb.notebook.findings import FindingActions
from ddpnb.notebook.widgets.parts import Card
from ddpnb.recording.findings import Diagnosis, Finding, FindingType
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.render import card as render
from tests.notebook.waiting import Overtaken
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
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    card, others, sent = Card(TWO, headline=False), [], []
    monkeypatch.setattr(Card, "send", lambda _, content: sent.append(content))
    FindingActions(card, lambda: Recording(1, {0: RankRecord(0)}), lambda action, _: others.append(action))
    card.others, card.sent = others, sent
    return card


def until(so, card):
    deadline = time.monotonic() + 20
    while not so():
        assert time.monotonic() < deadline, Reading(card.html).text
        time.sleep(0.01)


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
    assert "what to look at" not in does(desk, "close story")


@pytest.mark.parametrize(("says", "words"), [("copied", "Copied."), ("not copied", "select the text and copy it")])
def test_a_report_is_shown_and_copied(desk, says, words):
    assert "### DDP301 collective-missing" in does(desk, "report") and "DDP999" not in desk.sent[0]["text"]
    assert desk.sent[0]["kind"] == "copy"
    desk.on_action(says, {})
    assert words in Reading(desk.html).text


def test_files_are_written_and_answers_stand_below(desk, monkeypatch):
    monkeypatch.setattr(findings.reenacting, "export", lambda _, path: Path(path).write_text("#") + 1)
    for action, words in (("save finding", 'ddpnb.load("hang.ddpnb")'), ("save finding", "hang-2.ddpnb"),
                          ("export finding", "torchrun --nproc-per-node 2 repro.py"),
                          ("share finding", "Written: hang.html"),
                          ("export finding", "is not a script that ddpnb has written")):  # fmt: skip
        does(desk, action, 1)
        until(lambda words=words: words in Reading(desk.html).text, desk)
    assert ddpnb.load("hang-2.ddpnb").world_size == 1
    assert "<html" in Path("hang.html").read_text()


def test_other_actions_are_the_panels(desk):
    for action, number in (("why", 0), ("explain", 7), ("rank", "x")):
        desk.on_action(action, {"number": str(number)})
    assert desk.others == ["why", "explain", "rank"]


def test_an_answer_to_another_diagnosis_is_not_shown(desk, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(findings.reenacting, "export", lambda *_: gate.wait(20) and 2)
    does(desk, "export finding", 1)
    desk.show_diagnosis(Diagnosis("hang", findings=TWO.findings, world_size=2))
    thread = next(one for one in threading.enumerate() if one.name == "ddpnb export finding")
    gate.set()
    thread.join(20)
    assert "Written" not in Reading(desk.html).text


def test_an_answer_stays_when_the_findings_are_drawn_meanwhile(desk, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(findings.reenacting, "export", lambda *_: gate.wait(20) and 2)
    does(desk, "export finding", 1)
    show = Overtaken(desk.show, lambda html, _: "Writing" in html)
    monkeypatch.setattr(desk, "show", show)
    drawing = threading.Thread(target=lambda: desk.show_diagnosis(desk.diagnosis, "Last run"))
    drawing.start()
    assert show.begun.wait(20)
    gate.set()
    drawing.join(20)
    until(lambda: "torchrun" in Reading(desk.html).text, desk)
    assert "Writing" not in Reading(desk.html).text
