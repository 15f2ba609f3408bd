"""The actions of the head that concern a whole run, as a page would send them."""

from __future__ import annotations

from pathlib import Path

import pytest

import ddpnb
from ddpnb.notebook import run_actions
from ddpnb.notebook.run_actions import RunActions
from ddpnb.notebook.tasks import Tasks
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.recording.events.startup import InitProcessGroup
from ddpnb.recording.findings import Diagnosis, Finding, FindingType
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.render import answers
from tests.notebook.waiting import until_done
from tests.render.reading import Reading

TWO = Diagnosis(
    "hang",
    findings=tuple(
        Finding(FindingType(code, name), f"{name}.")
        for code, name in (("DDP301", "collective-missing"), ("DDP999", "odd"))
    ),
    world_size=1,
)
START = InitProcessGroup(backend="gloo", versions={"torch": "2.13.0", "python": "3.13.1"})
RUN = Recording(1, {0: RankRecord(0, history=(START,))}, host={"command": "train.py --steps 3", "system": "Linux 6"})


@pytest.fixture
def head(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tasks, sent = Tasks(lambda: None), []
    monkeypatch.setattr(Fragment, "send", lambda _, content: sent.append(content))
    actions = RunActions(tasks, lambda: (RUN, TWO))
    actions.sent = sent

    def does(action, **values):
        assert actions.take(action, values)
        until_done(tasks)
        return tasks.answer("")

    actions.does = does
    return actions


def test_files_are_written_and_can_be_opened_from_the_answer(head, monkeypatch):
    monkeypatch.setattr(run_actions.reenacting, "export", lambda _, path: Path(path).write_text("#") + 1)
    for action, words, name, ways in (
        ("save", 'ddpnb.load("hang.ddpnb")', "hang.ddpnb", ["download"]),
        ("save", "hang-2.ddpnb", "hang-2.ddpnb", ["download"]),
        ("export", "torchrun --nproc-per-node 2 repro.py", "repro.py", ["edit", "download"]),
        ("share", "Written: hang.html", "hang.html", ["open", "download"]),
    ):
        answer = head.does(action)
        assert words in answer.said and not answer.bad
        assert answer.file == str(Path(name).resolve())
        buttons = Reading(answers.html(answer)).all("button")
        assert [(one["data-written"], one["data-how"]) for one in buttons] == [(answer.file, way) for way in ways]
    assert ddpnb.load("hang-2.ddpnb").world_size == 1


def test_a_script_of_somebody_else_stays(head):
    Path("mine.py").write_text("print()")
    answer = head.does("export", script="mine.py")
    assert answer.bad and "is not a script that ddpnb has written" in answer.said and not answer.file
    assert Path("mine.py").read_text() == "print()"


def test_the_page_says_what_ran_on_what(head):
    head.does("share")
    page = Path("hang.html").read_text()
    for words in ("train.py --steps 3", "backend gloo", "torch 2.13.0", "python 3.13.1", "Linux 6"):
        assert words in page


@pytest.mark.parametrize(("says", "words"), [("copied", "Copied."), ("not copied", "select the text and copy it")])
def test_a_report_has_all_findings_and_is_shown_and_copied(head, says, words):
    head.does("report")
    (copied,) = head.sent
    for part in ("- command: train.py --steps 3", "torch 2.13.0", f"ddpnb {ddpnb.__version__}", "DDP301", "DDP999"):
        assert part in copied["text"] and part in Reading(head.report.html).text
    head.report.on_action(says, {})
    assert words in Reading(head.report.html).text
    head.report.on_action("close report", {})
    assert not head.report.html


def test_other_actions_are_not_taken(head):
    assert not head.take("why", {}) and not head.take("", {})


def test_the_page_is_told_only_of_a_file_that_is_named_here(tmp_path, monkeypatch):
    (tmp_path / "hang.html").write_text("x")
    path, sent = str(tmp_path / "hang.html"), []
    part = Fragment(answers.html(answers.Answer((), "Written.", file=path)))
    monkeypatch.setattr(part, "send", sent.append)
    for file in ("/etc/passwd", "", path):
        part._handle_custom_msg({"action": "written", "values": {"file": file, "root": str(tmp_path)}}, [])
    part._handle_custom_msg({"action": "written", "values": None}, [])
    assert [one["path"] for one in sent] == ["hang.html"]
