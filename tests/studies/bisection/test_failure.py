"""Whether a run fails as another did."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.calls import Site
from ddpnb.recording.findings import Diagnosis, Finding, FindingType
from ddpnb.studies.bisection.failure import failures, judge, read

MISSING = FindingType("DDP301", "collective-missing")
SLOW = FindingType("DDP501", "straggler", severity="warning")


def hang(
    line: int = 7,
    file: str = "/w/train.py",
    function: str = "main",
    culprits: tuple[int, ...] = (1,),
    waiting: int = 20,
) -> Diagnosis:
    where = ((0, Site("/w/train.py", waiting, "main")), (1, Site(file, line, function)))
    return Diagnosis("hang", (Finding(MISSING, "rank 1 is missing", culprits, (0,), where=where),))


def test_a_failure_is_its_finding_with_files_named_from_where_it_ran():
    (failure,) = failures(hang(), 3, "/w")
    assert (failure["code"], failure["culprits"], failure["summary"]) == ("DDP301", [1], "rank 1 is missing")
    assert [(site["file"], site["line"]) for site in failure["where"]] == [("train.py", 20), ("train.py", 7)]
    assert read(failure) == failure


def test_without_culprits_all_places_count():
    (original,) = failures(hang(culprits=()), 3, "/w")
    assert judge(original, failures(hang(line=8, culprits=()), 3, "/w")) == "bad"
    assert judge(original, failures(hang(line=8, waiting=21, culprits=()), 3, "/w")) == "other"


def test_where_the_culprit_is_inferred_all_places_count():
    """Where the other rank waits depends on what else is on."""
    one, other = hang(line=7), hang(line=8)
    likely = [Diagnosis("hang", (replace(told.findings[0], certainty="likely"),)) for told in (one, other)]
    (original,) = failures(likely[0], 3, "/w")
    assert judge(original, failures(likely[1], 3, "/w")) == "bad"
    assert judge(original, failures(other, 3, "/w")) == "bad"
    assert judge(original, failures(hang(line=8, waiting=21), 3, "/w")) == "other"


@pytest.mark.parametrize(
    ("diagnosis", "answer"),
    [
        (hang(), "bad"),
        (hang(line=8), "other"),
        (hang(file="/w/other.py"), "other"),
        (Diagnosis(), "good"),
        (Diagnosis("ok", (Finding(SLOW, "slow"),)), "good"),
        (Diagnosis("crash"), "other"),
    ],
)
def test_the_answer(diagnosis, answer):
    (original,) = failures(hang(), 3, "/w")
    assert judge(original, failures(diagnosis, 0, "/w")) == answer


def test_in_another_commit_functions_are_compared():
    (original,) = failures(hang(), 3, "/w")
    assert judge(original, failures(hang(line=9, file="/x/train.py"), 3, "/x"), moved=True) == "bad"
    assert judge(original, failures(hang(line=9), 3, "/w"), moved=True) == "bad"
    assert judge(original, failures(hang(line=9, function="evaluate"), 3, "/w"), moved=True) == "other"


def test_a_failure_without_a_finding_is_its_exit_status():
    (original,) = failures(Diagnosis(), 7, "/w")
    assert original["code"] is None and read(original) == original
    assert judge(original, failures(Diagnosis(), 7, "/w")) == "bad"
    assert judge(original, failures(Diagnosis(), 8, "/w")) == "other"


@pytest.mark.parametrize("data", [None, {}, {"code": "DDP301", "places": [[1]], "summary": ""}])
def test_json_that_is_no_failure_is_refused(data):
    with pytest.raises((KeyError, TypeError, ValueError)):
        read(data)


def test_a_failure_without_a_place_is_none_that_names_one():
    """sys.exit() on a rank has no line, an exception has."""
    nowhere = Diagnosis("crash", (Finding(MISSING, "Rank 0 called sys.exit(1).", (0,)),))
    (original,) = failures(nowhere, 1, "/w")
    assert judge(original, failures(nowhere, 1, "/w")) == "bad"
    assert judge(original, failures(hang(), 3, "/w")) == "other"
