from __future__ import annotations

import dataclasses
import json

import pytest

from ddpnb.errors import CannotWrite
from ddpnb.recording.calls import NO_SITE, Site
from ddpnb.recording.findings import Diagnosis, Finding, FindingType, Hint
from ddpnb.rules.finding_types import type_of
from tests.render.findings import USUAL, hang
from tests.render.partings import SKIPS
from tests.rules.recordings import Rank, diagnose, line, record

FINDING_KEYS = {
    "code", "name", "severity", "certainty", "hint", "parting", "summary", "culprits", "sides", "waiting", "collective", "where", "tensors", "evidence", "remedy",
}  # fmt: skip


@pytest.fixture
def diagnosis():
    return dataclasses.replace(
        hang(), exit_codes={1: None, 0: 0}, timing={"launch_s": 1.23456, "run_s": 0.0, "diagnosis_s": 2.0}
    )


# -- the diagnosis file, schema 2


def test_the_diagnosis_has_the_fields_of_the_contract(diagnosis):
    assert set(diagnosis.to_json()) == {
        "schema",
        "outcome",
        "world_size",
        "exit_codes",
        "findings",
        "timing",
        "settled",
        "notes",
    }
    assert set(diagnosis.to_json()["findings"][0]) == FINDING_KEYS


def test_the_diagnosis_as_json(diagnosis):
    value = json.loads(json.dumps(diagnosis.to_json()))
    assert (value["schema"], value["outcome"], value["world_size"]) == (2, "hang", 4)
    assert value["exit_codes"] == {"0": 0, "1": None}
    assert value["timing"] == {"launch_s": 1.2346, "run_s": 0.0, "diagnosis_s": 2.0}
    assert value["findings"] == [
        {
            "code": "DDP301",
            "name": "collective-missing",
            "severity": "error",
            "certainty": "proven",
            "summary": USUAL.summary,
            "culprits": [1],
            "sides": [],
            "waiting": [0, 2, 3],
            "collective": {
                "op": "all_reduce", "group": "default_pg", "seq": 57, "shapes": [[1024]], "dtypes": ["float32"],
            },
            "where": [
                {"rank": 1, "file": "/home/user/train.py", "line": 95, "function": "main"},
                {"rank": 0, "file": "/home/user/train.py", "line": 91, "function": "main"},
            ],
            "hint": None,
            "parting": None,
            "tensors": [],
            "evidence": list(USUAL.evidence),
            "remedy": USUAL.remedy,
        }
    ]  # fmt: skip


def test_a_finding_without_a_collective_says_so():
    value = hang(Finding(type_of("DDP102"), "x")).to_json()["findings"][0]
    assert value["collective"] is None
    assert (value["where"], value["culprits"], value["waiting"]) == ([], [], [])


def test_a_hint_is_named_from_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hint = Hint(str(tmp_path / "train.py"), 31, "`if rank` decides which ranks get there")
    value = hang(Finding(type_of("DDP301"), "x", certainty="likely", hint=hint)).to_json()["findings"][0]
    assert value["certainty"] == "likely"
    assert value["hint"] == {"file": "train.py", "line": 31, "reason": hint.reason}


def test_where_ranks_part_is_kept_and_read_back(monkeypatch):
    finding = dataclasses.replace(USUAL, collective=None, parting=SKIPS)
    assert Finding.from_json(json.loads(json.dumps(finding.to_json()))) == finding
    assert Finding.from_json({**USUAL.to_json(), "parting": None}).parting is None
    monkeypatch.setattr("os.getcwd", lambda: "/home/user")
    value = hang(finding).to_json()["findings"][0]["parting"]
    assert (value["file"], value["line"], value["kind"]) == ("train.py", 8, "branch")
    assert value["ways"][0]["calls"] == ["all_reduce #15 of default_pg at train.py:11"]
    assert [way["to"]["file"] for way in value["ways"]] == ["train.py", "train.py"]


def test_a_log_without_partings_is_read():
    value = USUAL.to_json()
    del value["parting"]
    assert Finding.from_json(value).parting is None


def test_a_tie_lists_its_sides_and_no_culprit():
    value = hang(Finding(type_of("DDP410"), "x", sides=((0, 2), (1, 3)))).to_json()["findings"][0]
    assert (value["culprits"], value["sides"]) == ([], [[0, 2], [1, 3]])


def test_exit_codes_are_in_the_order_of_the_ranks():
    codes = Diagnosis(exit_codes={10: 0, 2: -9, 0: None}).to_json()["exit_codes"]
    assert list(codes.items()) == [("0", None), ("2", -9), ("10", 0)]


def test_files_below_the_working_directory_are_named_from_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    finding = dataclasses.replace(
        USUAL,
        summary=f"at {tmp_path}/train.py:9",
        evidence=(f"at {tmp_path}/train.py:9",),
        where=((0, Site(f"{tmp_path}/train.py", 9, "main")), (1, Site("/elsewhere/a.py", 2, "f"))),
    )
    value = hang(finding).to_json()["findings"][0]
    assert [place["file"] for place in value["where"]] == ["train.py", "/elsewhere/a.py"]
    assert value["summary"] == value["evidence"][0] == "at train.py:9"


# -- saving


def test_a_saved_diagnosis_reads_back(diagnosis, tmp_path):
    path = tmp_path / "diagnosis.json"
    diagnosis.save(path)
    assert json.loads(path.read_text()) == diagnosis.to_json()
    assert [file.name for file in tmp_path.iterdir()] == ["diagnosis.json"]


def test_a_diagnosis_is_saved_over_an_older_one(diagnosis, tmp_path):
    path = tmp_path / "diagnosis.json"
    path.write_text("x" * 100_000)
    diagnosis.save(str(path))
    assert json.loads(path.read_text())["outcome"] == "hang"


def test_a_save_that_fails_leaves_the_older_diagnosis_whole(diagnosis, tmp_path):
    """It fails in the middle: the exit codes come before what cannot be written."""
    path = tmp_path / "diagnosis.json"
    diagnosis.save(path)
    before = path.read_text()
    broken = dataclasses.replace(diagnosis, findings=(dataclasses.replace(USUAL, tensors=(object(),)),))
    with pytest.raises(TypeError):
        broken.save(path)
    assert path.read_text() == before


def test_words_of_any_language_and_names_that_are_no_unicode_can_be_saved(tmp_path):
    path = tmp_path / "diagnosis.json"
    finding = dataclasses.replace(USUAL, summary="Größe \udce4 <script>")
    hang(finding).save(path)
    assert json.loads(path.read_text(encoding="utf-8"))["findings"][0]["summary"] == "Größe \udce4 <script>"


def test_a_folder_that_is_not_there_is_an_error(diagnosis, tmp_path):
    with pytest.raises(CannotWrite, match="No such file"):
        diagnosis.save(tmp_path / "missing" / "diagnosis.json")


# -- showing


def test_the_errors_of_a_diagnosis(diagnosis):
    assert diagnosis.errors == (USUAL,)
    assert diagnosis.settled


def test_a_diagnosis_shows_itself_as_text_and_as_html(diagnosis):
    assert str(diagnosis) == repr(diagnosis)
    assert str(diagnosis).startswith("ddpnb: hang")
    assert "<div" not in str(diagnosis)
    assert "DDP301" in diagnosis._repr_html_()
    assert diagnosis._repr_html_().startswith("<style>")


def test_diagnosing_a_recording_gives_a_diagnosis():
    recording = record(Rank(0, 2).waits("all_reduce", line(9)), Rank(1, 2).idles(8.0, line(4)))
    assert diagnose(recording).outcome == "ok"
    found = diagnose(recording, patience=5.0)
    assert isinstance(found, Diagnosis)
    assert found.to_json()["findings"][0]["code"] == "DDP313"


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("/usr/lib/python3.13/concurrent/futures/thread.py", False),
        ("/venv/lib64/python3.11/threading.py", False),
        ("<frozen importlib._bootstrap>", False),
        ("/venv/lib/python3.13/site-packages/recipes/train.py", True),
        ("/usr/lib/python3/dist-packages/recipes/train.py", True),
        ("/home/user/lib/train.py", True),
        ("<string>", True),
    ],
)
def test_a_finding_points_to_no_line_of_the_standard_library(file, named):
    mine = (0, Site("train.py", 3, "main"))
    finding = Finding(FindingType("DDP301", "x"), "x", where=(mine, (1, Site(file, 58, "run")), (2, NO_SITE)))
    assert finding.where == (mine, *(((1, Site(file, 58, "run")),) if named else ()))
