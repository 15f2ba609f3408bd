"""Every notebook runs headless from top to bottom, opens without a question, and is committed without outputs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
LONGEST_S = 240  # alone 17 to 22 s; beside the other lanes of tests, or on a slow machine, many times that
notebooks = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


def test_all_are_there():
    assert {path.stem for path in NOTEBOOKS} == {"tour", "startup", "pitfalls", "ranks", "bisection", "reported-hang"}


# tests/browser/test_tour.py runs each cell of the tour by mouse.
@pytest.mark.world
@pytest.mark.beside
@pytest.mark.timeout(LONGEST_S + 30)
@pytest.mark.parametrize("notebook", [path for path in NOTEBOOKS if path.stem != "tour"], ids=lambda path: path.stem)
def test_runs(notebook):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbmake", f"--nbmake-timeout={LONGEST_S}",
         str(notebook), "-c", "/dev/null", "--rootdir", str(notebook.parent)],
        capture_output=True, text=True, timeout=LONGEST_S + 15, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]


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
