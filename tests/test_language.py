"""People read plain English: in messages, pages, documents, notebooks, docstrings and comments."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ddpnb.recording import phrases
from ddpnb.world.release import Freed
from tests.language import disagreements, fixed_verbs, idiom, idiom_of_module

_ROOT = Path(__file__).parents[1]
_MODULES = [
    *((_ROOT / "ddpnb").rglob("*.py")),
    *(_ROOT / "benchmarks").glob("*.py"),
    *(_ROOT / "benchmarks/catalogue").glob("*.py"),
]
_OTHERS = [
    *(_ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", "pyproject.toml")),
    *(_ROOT / "docs").rglob("*.md"),
    *(_ROOT / "benchmarks").rglob("*.md"),
    *(_ROOT / "ddpnb").rglob("*.md"),
    *(path for path in (_ROOT / "ddpnb/notebook/widgets/static").glob("*") if path.suffix in (".js", ".css")),
]


def _named(path: Path) -> str:
    return str(path.relative_to(_ROOT))


def test_modules_are_written_in_plain_english():
    assert not [(_named(path), hit) for path in _MODULES for hit in idiom_of_module(path.read_text())]


def test_documents_pages_and_scripts_are_written_in_plain_english():
    assert not [(_named(path), hit) for path in _OTHERS for hit in idiom(path.read_text())]


def test_what_is_new_is_described_in_plain_english():
    assert not idiom(re.split(r"(?m)^## ", (_ROOT / "CHANGELOG.md").read_text())[1])


@pytest.mark.parametrize("path", sorted((_ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.name)
def test_notebooks_and_their_outputs_are_written_in_plain_english(path):
    for cell in json.loads(path.read_text())["cells"]:
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop("image/png", None)
        assert not idiom(json.dumps(cell, ensure_ascii=False))


@pytest.mark.parametrize(
    "folder", ["rules/catalogue", "recording/messages", "studies/scan", "recording/source", "recorder/faults"]
)
def test_names_are_nouns(folder):
    named = re.compile(r"(?<![\w.\"])(?:found|told|mended|struck|hotline)(?= =|: |\.| in\b)")
    for path in (_ROOT / "ddpnb" / folder).rglob("*.py"):
        code = re.sub(r'""".*?"""|"[^"\n]*"|#[^\n]*', "", path.read_text(), flags=re.DOTALL)
        assert not named.findall(code), path


def test_verbs_fit_the_number_of_ranks():
    assert not [(_named(path), text) for path in _MODULES for text in fixed_verbs(path.read_text())]


@pytest.mark.parametrize("numbers", [(1,), (0, 1), (0, 1, 2, 3), range(40), (0, 2, 4, 9), range(0, 80, 2)])
def test_phrases_fit_the_number_of_ranks(numbers):
    sentence = f"{phrases.ranks(numbers, capital=True)} {phrases.verb(set(numbers), 'is', 'are')} blocked."
    wrong = f"{phrases.ranks(numbers, capital=True)} {phrases.verb(set(numbers), 'are', 'is')} blocked."
    assert not disagreements(sentence)
    assert disagreements(wrong)
    assert not disagreements(f"The value on {phrases.ranks(numbers)} is 3.")


@pytest.mark.parametrize("ranks", [(1,), (0, 1)])
def test_what_a_release_says_fits_the_number_of_ranks(ranks):
    assert not disagreements(str(Freed(ranks)))


def test_the_rules_find_what_they_are_for():
    assert idiom("Mend the loop") and idiom("it waits for\n    # ever") and not idiom("told apart, a recommendation")
    assert idiom("rank 1 has not yet\n    come") and not idiom("a lock stands in for the real one")
    assert idiom_of_module("say = 'it goes '\\\n    'on'\n") and not idiom_of_module("told = 1")
    assert list(fixed_verbs('f"{phrases.ranks(dead, True)} is dead"'))
    assert not list(fixed_verbs('f"the value on {phrases.ranks(sides)} is 3"'))
