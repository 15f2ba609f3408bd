"""Every notebook opens without a question, and is committed without outputs. tests/browser runs each of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
notebooks = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


def test_all_are_there():
    assert {path.stem for path in NOTEBOOKS} == {"tour", "startup", "pitfalls", "ranks", "bisection", "reported-hang"}


@notebooks
def test_committed_without_outputs(notebook):
    cells = json.loads(notebook.read_text())["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    assert not any(set(cell["metadata"]) - {"tags"} for cell in cells)


@notebooks
def test_opens_without_a_question(notebook):
    book = json.loads(notebook.read_text())
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert book["metadata"]["kernelspec"]["name"] == "python3"  # else JupyterLab asks for a kernel
    assert set(book["metadata"]) == {"kernelspec", "language_info"}
    names = [cell["id"] for cell in book["cells"]]
    assert len(names) == len(set(names))


@notebooks
def test_is_written_as_all_are(notebook):
    text = notebook.read_text()
    assert text == json.dumps(json.loads(text), indent=1, ensure_ascii=False) + "\n"


@notebooks
def test_says_first_what_it_is_for(notebook):
    first = json.loads(notebook.read_text())["cells"][0]
    assert first["cell_type"] == "markdown"
    title, _, purpose = "".join(first["source"]).partition("\n")
    assert title.startswith("# ")
    assert purpose.strip()


@notebooks
def test_names_nothing_of_the_machine_it_was_made_on(notebook):
    text = notebook.read_text()
    assert not re.search(r"[\s\"'(`](/[a-z]\w*/|[A-Z]:\\\\|~/)", text)


@notebooks
def test_links_lead_somewhere(notebook):
    for link in re.findall(r"\]\(([^)#]+)\)", notebook.read_text()):
        assert link.startswith("https://") or (notebook.parent / link).exists(), link
