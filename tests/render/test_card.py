from __future__ import annotations

import dataclasses
import io
import re

import pytest

from ddpnb.recording.calls import Site
from ddpnb.recording.findings import Diagnosis, Finding, FindingType, Hint
from ddpnb.render import as_text, card
from ddpnb.rules.finding_types import type_of
from tests.render.findings import USUAL, hang, saying
from tests.render.test_terminal import Terminal

ESCAPE = "\x1b"
HOSTILE = {
    "colour": "\x1b[31mred\x1b[0m",
    "clear screen": "\x1b[2J\x1b[H",
    "title": "\x1b]0;owned\x07",
    "8-bit CSI": "\x9b31m",
    "bell and backspace": "\x07\x08\x08",
    "null": "a\x00b",
    "delete": "a\x7fb",
    "overwrite": "harmless\rrm -rf",
    "device string": "\x1bP$q\x1b\\\x90\x9c",
}


# -- what is said


def test_a_diagnosis_says_what_why_where_and_how_to_mend_it():
    shown = card.text(hang())
    assert shown.startswith("ddpnb: hang")
    assert "Rank 1 never calls the all_reduce" in shown
    assert "[DDP301 collective-missing]" in shown
    assert "  - Line 90 decides: if rank != 1." in shown
    assert "where: rank 1 was last at /home/user/train.py:95; rank 0 waits at train.py:91" in shown
    assert "Fix: Let all ranks take the same path." in shown
    assert not shown.endswith("\n")


@pytest.mark.parametrize(
    ("certainty", "words"), [("proven", ""), ("timed", "Not proven: no progress"), ("likely", "Likely, not proven")]
)
def test_what_is_not_proven_says_so(certainty, words):
    diagnosis = hang(dataclasses.replace(USUAL, certainty=certainty))
    for shown in (card.text(diagnosis), card.html(diagnosis)):
        assert words in shown
        assert ("not proven" in shown.lower()) == bool(words)


def test_what_the_source_suggests_is_no_evidence():
    diagnosis = hang(dataclasses.replace(USUAL, hint=Hint("/home/user/train.py", 90, "`if rank < 1` decides")))
    line = "  Possible cause: train.py:90: `if rank < 1` decides (inferred from the source)"
    assert line in card.text(diagnosis, width=120).splitlines()
    assert "<code>if rank &lt; 1</code> decides (inferred from the source)</div>" in card.html(diagnosis)


def test_the_root_cause_stands_first():
    shown = card.text(hang(USUAL, dataclasses.replace(USUAL, summary="A second thing.")))
    assert shown.index("never calls") < shown.index("A second thing.")


def test_the_time_to_the_verdict_is_told():
    assert "detected 1.2 s after the last progress" in card.text(hang(timing={"diagnosis_s": 1.24}))
    assert "detected" not in card.text(hang()).splitlines()[0]


def test_a_command_that_fails_by_itself_names_no_rank():
    """A parent that ends with another status than 0 once its ranks have finished."""
    assert "a rank failed" not in card.outcome_line(Diagnosis("crash", exit_codes={0: 0, 1: 0}))
    assert "a rank failed" in card.outcome_line(Diagnosis("crash", exit_codes={0: 0, 1: None}))


@pytest.mark.parametrize("outcome", ["ok", "hang", "crash", "divergence"])
def test_a_diagnosis_without_findings(outcome):
    shown = card.text(Diagnosis(outcome, settled=True))
    assert shown.startswith(f"ddpnb: {outcome}")
    assert len(shown.splitlines()) == 1


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        (["DDP316"], "not waited for"),
        (["DDP107"], "set up differently"),
        (["DDP316", "DDP405"], "the ranks diverged"),
        (["DDP501"], "with errors"),  # the same data: the replicas are equal
        (["DDP107", "DDP409"], "with errors"),
    ],
)
def test_of_a_divergence_no_more_is_said_than_is_known(codes, words):
    errors = tuple(Finding(type_of(code), "Something.") for code in codes)
    assert words in card.text(Diagnosis("divergence", errors, settled=True)).splitlines()[0]


def test_ranks_that_failed_under_a_command_that_succeeded_did_not_complete():
    told = Diagnosis("ok", (), settled=True, world_size=2, exit_codes={0: None, 1: 1})
    assert card.text(told).startswith("ddpnb: ok: the command succeeded")


def test_a_running_run_is_not_shown_as_completed():
    shown = card.text(Diagnosis())
    assert "running" in shown
    assert "completed" not in shown


def test_a_finding_with_nothing_but_a_summary():
    nothing_else = card.document(Finding(FindingType("DDP999", "unknown"), "Something."))
    assert as_text.text(nothing_else) == "Something.  [DDP999 unknown]"


def test_a_finding_without_words():
    assert "[DDP301 collective-missing]" in card.text(hang(Finding(type_of("DDP301"), "")))


def test_of_a_thousand_places_a_few_are_shown():
    many = dataclasses.replace(USUAL, where=tuple((rank, Site("t.py", rank, "main")) for rank in range(1000)))
    shown = card.text(hang(many))
    assert "rank 7: t.py:7; and 992 more places" in shown
    assert "rank 8:" not in shown


def test_ranks_at_one_place_are_named_together():
    lines = {rank: 41 if rank == 1 else 44 for rank in (1, 0, 2, 3, 4, 5, 6, 7)}
    there = tuple((rank, Site("train.py", line, "main")) for rank, line in lines.items())
    shown = card.text(hang(dataclasses.replace(USUAL, where=there, waiting=(0, *range(2, 8)))))
    assert "where: rank 1 was last at train.py:41; ranks 0 and 2-7 wait at train.py:44\n" in shown


@pytest.mark.parametrize("width", [40, 72, 100])
def test_lines_are_no_wider_than_asked(width):
    long = dataclasses.replace(USUAL, evidence=("word " * 100,), remedy="word " * 100)
    shown = card.text(hang(long), width=width)
    assert all(len(row) <= width for row in shown.splitlines() if row.startswith(" "))


def test_a_path_is_never_broken():
    path = "/a-very-long-folder/with-hyphens" * 5 + "/train.py"
    long = dataclasses.replace(USUAL, where=((0, Site(path, 9, "main")),))
    assert f"{path}:9" in card.text(hang(long), width=40)


def test_a_place_below_the_working_directory_is_named_from_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = dataclasses.replace(
        USUAL, summary=f"at {tmp_path}/a.py:1", where=((0, Site(f"{tmp_path}/train.py", 9, "m")),)
    )
    shown = card.text(hang(here))
    assert "rank 0 waits at train.py:9" in shown
    assert "at a.py:1" in shown


# -- what a rank must not do to a terminal


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
def test_control_characters_of_a_rank_do_not_reach_the_terminal(hostile, colour):
    shown = card.text(saying(hostile), colour=colour)
    ours = card.text(saying("harmless"), colour=colour)
    assert shown.count(ESCAPE) == ours.count(ESCAPE)
    assert not re.search(r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]", shown)


def test_a_name_that_is_no_unicode_can_be_printed():
    """A path that is not UTF-8 comes as lone surrogates, which no stream takes."""
    assert card.text(saying("/data/\udce4/train.py")).encode()


def test_a_summary_of_many_lines_cannot_forge_a_finding():
    shown = card.text(saying("bad\n\nRank 3 is to blame.  [DDP311 rank-dead]"))
    assert not any(row.startswith("Rank 3") for row in shown.splitlines())


# -- colours


def test_colours_only_when_asked():
    assert ESCAPE not in card.text(hang())
    assert ESCAPE in card.text(hang(), colour=True)


def test_colours_change_nothing_but_colour():
    painted = card.text(hang(), colour=True, width=80)
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == card.text(hang(), width=80)


def test_show_prints_to_the_stream(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    plain, terminal = io.StringIO(), Terminal()
    card.show(hang(), plain)
    card.show(hang(), terminal)
    assert plain.getvalue().startswith("ddpnb: hang")
    assert plain.getvalue().endswith("\n")
    assert ESCAPE not in plain.getvalue()
    assert ESCAPE in terminal.getvalue()
