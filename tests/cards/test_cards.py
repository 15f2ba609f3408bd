"""The whole text of a card for each finding.

The first line of ``DDPxxx.txt`` (or ``DDPxxx-WORDS.txt``, where a finding has several forms) names a recording of
``tests/recordings``, or a function of ``written.py``; what follows is the diagnosis as a terminal of 100 columns shows it.
``pytest --accept tests/cards`` writes the texts again: read the diff as a stranger would.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from ddpnb.recording import recording_file
from ddpnb.recording.findings import Diagnosis
from ddpnb.rules.finding_types import declared
from ddpnb.rules.rule import MOST_WORDS
from tests.cards import written
from tests.language import disagreements, idiom
from tests.recordings.portable import without_tracer
from tests.recordings.scenario import FOLDER, diagnosed

HERE = Path(__file__).parent
CARDS = sorted(path.stem for path in HERE.glob("DDP*.txt"))
SOURCES = {name: (HERE / f"{name}.txt").read_text().partition("\n")[0] for name in CARDS}
WRITTEN = {source.removeprefix("written/") for source in SOURCES.values() if source.startswith("written/")}
PATIENCE = 1.0  # shorter than the run of any recording


def shown(source: str) -> tuple[Diagnosis, str]:
    """The diagnosis of a recording, and its text without the path of the project."""
    folder, _, name = source.partition("/")
    if folder == "written":
        recording = getattr(written, name)()
    else:
        recording = without_tracer(recording_file.load(FOLDER / f"{source}.ddpnb"))
    diagnosis = diagnosed(recording, PATIENCE)
    return diagnosis, str(diagnosis)


@pytest.mark.parametrize("name", CARDS)
def test_a_card_has_the_expected_text(name, request):
    path = HERE / f"{name}.txt"
    source = path.read_text().partition("\n")[0]
    diagnosis, text = shown(source)
    assert name.partition("-")[0] in [finding.code for finding in diagnosis.findings]
    expected = f"{source}\n\n{text}\n"
    if request.config.getoption("--accept"):
        path.write_text(expected)
    assert path.read_text() == expected


@pytest.mark.parametrize("name", CARDS)
def test_a_card_is_plain_english(name):
    text = (HERE / f"{name}.txt").read_text()
    said = " ".join(line for line in text.split("\n") if not re.search(r"^ *(?:[\d, -]*[>→-]*)? *\d+ \| ", line))
    assert idiom(said) + disagreements(" ".join(said.split())) == []


@pytest.mark.parametrize("name", CARDS)
def test_no_place_is_named_three_times(name):
    """Once in the margin of the source, and once more at most."""
    for card in re.split(r"\n(?=\S.*\n)", (HERE / f"{name}.txt").read_text()):
        marked = re.findall(r"^ +\S.* (?:->| >) +(\d+) \| ", card, re.MULTILINE)
        named = re.findall(r"[\w-]+\.py:(\d+)\b", card)
        assert {line: count for line, count in Counter(marked + named).items() if count > 2} == {}


def test_each_finding_has_a_card():
    """A code that only messages of torch lead to is declared nowhere: its texts are those of ``rules/messages``."""
    assert sorted({name.partition("-")[0] for name in CARDS}) == sorted(declared())


def test_a_title_is_short():
    """Of all recorded findings, and of those that are written."""
    found = [one for path in FOLDER.rglob("*.json") for one in json.loads(path.read_text())["findings"]]
    found += [one for name in WRITTEN for one in shown(f"written/{name}")[0].to_json()["findings"]]
    long = {one["code"]: one["summary"] for one in found if len(one["summary"].split()) > MOST_WORDS}
    assert long == {}
