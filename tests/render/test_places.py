"""What cards say of places: names of files, and what ranks did where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.calls import Site
from ddpnb.recording.findings import Finding, Hint
from ddpnb.recording.phrases import undecided
from ddpnb.render import as_text, card
from ddpnb.render.places import FileNames, evidence, open_question, places
from ddpnb.rules.finding_types import type_of
from tests.render.findings import CALL, USUAL, hang
from tests.render.partings import FILE, SKIPS, SOURCE, at
from tests.render.reading import Reading


def said(finding: Finding) -> list[str]:
    """Places, of which the lines say enough."""
    return [line.replace(f"{FILE}:", "") for line in places(finding)]


def words(names: FileNames, sentence: str) -> str:
    return as_text.words(names(sentence))


# -- names of files


def test_a_file_is_named_in_full_once():
    names = FileNames([FILE])
    assert words(names, f"at {FILE}:3 and {FILE}:4, in {FILE}") == f"at {FILE}:3 and train.py:4, in {FILE}"
    assert words(names, f"not {FILE}x:3, nor /other{FILE}:3") == f"not {FILE}x:3, nor /other{FILE}:3"
    assert words(names, str(at(5))) == "train.py:5"


def test_files_of_one_name_are_told_apart():
    names = FileNames(["/a/x/train.py", "/a/y/train.py"])
    assert words(names, "/a/x/train.py:1 /a/y/train.py:2 /a/x/train.py:3 /a/y/train.py:4").split()[2:] == [
        "x/train.py:3",
        "y/train.py:4",
    ]


def test_a_file_that_only_a_sentence_names():
    sentence = "Rank 0 is in read (/lib/connection.py:395), and again in /lib/connection.py:395."
    assert words(FileNames([], [sentence]), sentence).endswith("again in connection.py:395.")


@pytest.mark.parametrize("file", ["train.py", "javascript:alert(1)//", "</div></div>", "folder/", ""])
def test_other_names_stay_as_they_are(file):
    names = FileNames([file])
    assert words(names, f"{file}:1 {file}:2") == f"{file}:1 {file}:2"


@pytest.mark.parametrize("shown", [lambda one: card.text(hang(one)), lambda one: card.markdown(hang(one))])
def test_the_path_of_a_file_stands_once_in_a_card(shown):
    path = "/job/project/steps.py"
    finding = replace(
        USUAL,
        summary=f"Rank 1 waits at {path}:9.",
        where=((1, Site(path, 95, "main")), (0, Site(path, 91, "main"))),
        evidence=(f"Rank 0 is at {path}:91.",),
        hint=Hint(path, 90, "it decides"),
        remedy=f"Change {path}:90.",
    )
    text = shown(finding).replace("`", "")  # of Markdown
    assert text.count(path) == 1
    assert text.index("Rank 1 waits at steps.py:9.") < text.index(path) < text.index("Change steps.py:90."), (
        "not in the title"
    )


# -- the order of the evidence


def test_that_nothing_tells_who_is_at_fault_is_said_last():
    sides = ((0,), (1,))
    (tie,) = undecided(sides)
    tied = replace(USUAL, sides=sides, evidence=("first", tie, "second"))
    assert (evidence(tied), open_question(tied)) == (("first", "second"), [tie])
    assert card.text(hang(tied)).rstrip().endswith(tie)
    untied = replace(USUAL, evidence=("first", tie))
    assert (evidence(untied), open_question(untied)) == (("first", tie), [])


def test_what_is_true_of_several_ranks_is_said_once():
    said = (
        "Rank 0: gloo.",
        "Rank 1: gloo.",
        "Rank 0 is blocked.",
        "Rank 2: nccl.",
        "Rank 1 is blocked.",
        "Rank 3 is blocked.",
    )
    assert evidence(replace(USUAL, evidence=said)) == (
        "Ranks 0 and 1: gloo.",
        "Rank 0 is blocked (ranks 1 and 3 too).",
        "Rank 2: nccl.",
    )


# -- the source


QUOTED = replace(
    USUAL,
    where=((1, at(9)), (0, at(11)), (3, at(11))),
    collective=replace(CALL, site=at(11)),
    hint=Hint(FILE, 8, "it decides"),
)


def test_the_lines_of_the_places_are_shown_with_what_ranks_did_there():
    shown = card.text(hang(QUOTED.quoted({FILE: SOURCE})))
    assert "possible cause ->  8 |     if not batch:" in shown
    assert "rank 1 last here ->  9 |         continue" in shown
    assert "ranks 0, 3 wait -> 11 |     loss.backward()" in shown
    assert "where:" not in shown and shown.count("train.py") == 2, "the heading, and the possible cause"
    page = Reading(card.html(hang(QUOTED.quoted({FILE: SOURCE}))))
    assert "ranks 0, 3 wait" in page.text and "Where:" not in page.text
    assert "ranks 0, 3 wait -> 11 |" in hang(QUOTED.quoted({FILE: SOURCE})).to_markdown()


def test_lines_that_ranks_did_not_run_are_not_shown():
    for finding in (QUOTED, QUOTED.quoted({FILE: SOURCE}, edited=[FILE]), QUOTED.quoted({"/other.py": SOURCE})):
        assert finding.source == () and "where: rank 1 was last at" in card.text(hang(finding))


def test_a_place_that_is_not_in_the_source_stays_named():
    far = replace(QUOTED, where=(*QUOTED.where, (2, at(900)), (2, Site("/lib/x.py", 3, "f")))).quoted({FILE: SOURCE})
    assert "where: rank 2: train.py:900, /lib/x.py:3" in card.text(hang(far))


def test_where_the_ranks_part_other_places_are_marked_too():
    found = replace(QUOTED, hint=None, culprits=(2,), waiting=(0, 1, 3), where=((2, at(9)), (0, at(11))), parting=SKIPS)
    shown = card.text(hang(found.quoted({FILE: SOURCE})))
    assert "ranks 0-3 part  >  8 | if not batch:" in shown and "rank 0 waits -> 11 | loss.backward()" in shown
    assert "where:" not in shown


def test_no_place_is_named_a_third_time():
    names = FileNames([FILE], functions=["train"])
    said = [words(names, f"Rank {rank} is blocked at {FILE}:3 in train.") for rank in range(3)]
    assert said[1:] == ["Rank 1 is blocked at train.py:3 in train.", "Rank 2 is blocked."]
    assert (
        words(names, f"Rank 3 is at {FILE}:3, and then at {FILE}:4.") == "Rank 3 is at line 3, and then at train.py:4."
    )
    assert words(names, f"Rank 3 is at {FILE}:3 in training.") == "Rank 3 is at line 3 in training."


# -- what ranks did


def test_ranks_that_part():
    where = tuple(
        (rank, at(line)) for rank, line in ((0, 8), (1, 8), (2, 8), (3, 8), (2, 5), (0, 11), (1, 11), (3, 11))
    )
    found = replace(USUAL, culprits=(2,), waiting=(0, 1, 3), where=where, parting=SKIPS)
    assert said(found)[0] == "ranks 0-3 part at 8"
    assert said(found)[-1] == "ranks 0, 1 and 3 wait at 11"
    assert any(text.startswith("rank 2 ") for text in said(found))


@pytest.mark.parametrize(
    ("code", "culprits", "waiting", "words"),
    [
        ("DDP505", (1,), (0,), ["rank 1 was last at 95", "rank 0 waits at 91"]),
        ("DDP301", (1,), (0,), ["rank 1 was last at 95", "rank 0 waits at 91"]),
        ("DDP302", (1,), (0,), ["rank 1 called at 95", "rank 0 waits at 91"]),
        ("DDP307", (1,), (0,), ["rank 1 was last at 95", "rank 0 waits at 91"]),
        ("DDP307", (0, 1), (), ["rank 1 is blocked at 95", "rank 0 is blocked at 91"]),
        ("DDP313", (1,), (0,), ["rank 1 is blocked at 95", "rank 0 waits at 91"]),
        ("DDP312", (1,), (0,), ["rank 1: 95", "rank 0 waits at 91"]),
    ],
)
def test_what_each_rank_did(code, culprits, waiting, words):
    certainty = "timed" if code == "DDP313" else "proven"
    found = replace(USUAL, type=type_of(code), culprits=culprits, waiting=waiting, certainty=certainty)
    assert said(found) == words


def test_a_rank_that_went_to_its_call_waits_there():
    call = replace(CALL, site=at(10))
    where = tuple((rank, at(line)) for rank, line in ((0, 8), (2, 8), (0, 10), (2, 9)))
    found = replace(USUAL, culprits=(2,), waiting=(0, 1, 3), where=where, parting=SKIPS, collective=call)
    assert "rank 0 waits at 10" in said(found)


def test_without_a_call_nobody_waits():
    assert said(replace(USUAL, collective=None)) == ["rank 1: 95", "rank 0: 91"]


def test_a_place_is_named_once_for_a_rank():
    where = ((0, at(7)), (0, at(7, "<module>")), (1, at(7)), (0, at(9)), (1, at(9)))
    assert said(replace(USUAL, collective=None, where=where)) == ["ranks 0, 1: 7, 9"]


def test_a_rank_with_several_places_waits_in_its_call():
    where = ((0, at(CALL.site.line)), (0, at(3)))
    assert said(replace(USUAL, collective=replace(CALL, site=where[0][1]), where=where)) == [
        f"rank 0: 3, waits at {CALL.site.line}"
    ]
