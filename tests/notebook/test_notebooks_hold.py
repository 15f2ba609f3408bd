"""What notebooks say holds: their cells run as a reader runs them, with checks between them that the reader does not see."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
#: notebook -> id of a cell -> what holds after it
CHECKS = {
    "tour": {
        "run-code": "assert [finding.code for finding in run.diagnosis.findings] == ['DDP301', 'DDP508']",
        "heal": "assert run.outcome == 'ok'",
        "inject": "assert run.diagnosis.findings[0].code == 'DDP405' and run.outcome == 'divergence'",
    },
    "startup": {
        "missing-heal": "assert startup.done and world.pids() == before",
        "port-heal": "assert startup.done and world.pids() == before",
    },
    "bisection": {
        "result": "assert [option['name'] for option in found.minimal] == ['--evaluate', '--checkpoint'] and len(found.trials) < 10",
        "fixed": "assert fixed.result.outcome == 'nothing fails'",
        "world": "assert [component['name'] for component in part.minimal] == ['log']",
    },
    "reported-hang": {
        "load": (
            "finding = ddpnb.diagnose(recording).findings[0]\n"
            "assert finding.code == 'DDP306' and {site.line for _, site in finding.where} == {29}"
        ),
        "reenact": "assert reenactment.same",
        "hold": "assert held.wait(30).held == (0, 1, 2, 3)",
        "program": (
            "finding = run.diagnosis.findings[0]\n"
            "assert (finding.code, finding.culprits, finding.parting.site.line) == ('DDP301', (1,), 28)\n"
            "labelled = world.evaluate('int(labelled.sum())', frame=1).values_by_rank\n"
            "assert [rank for rank, count in labelled.items() if count == 0] == [1]"
        ),
        "fix": "assert run.outcome == 'ok'",
        "log-reenact": "assert again.same",
        "stacks-reenact": "assert again.same",
    },
}


def cells_of(path):
    """Without nbformat, whose import takes 4 s of the processor, in each process that collects tests."""
    return json.loads(path.read_text())["cells"]


def checked(name):
    """The notebook with its checks between the cells."""
    import nbformat

    book = nbformat.read(NOTEBOOKS / f"{name}.ipynb", 4)
    cells = []
    for cell in book.cells:
        cells.append(cell)
        if cell.id in CHECKS[name]:
            cells.append(nbformat.v4.new_code_cell(CHECKS[name][cell.id]))
    book.cells = cells
    return book


@pytest.mark.parametrize("name", CHECKS)
def test_each_check_follows_a_cell(name):
    assert {cell["id"] for cell in cells_of(NOTEBOOKS / f"{name}.ipynb")} >= {*CHECKS[name]}


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_readers_see_no_checks_and_know_how_long_it_takes(path):
    cells = cells_of(path)
    assert not [cell["id"] for cell in cells if cell["cell_type"] == "code" and "assert " in "".join(cell["source"])]
    first = "".join(cells[0]["source"])
    assert "minute" in first and "Afterwards you know" in first


@pytest.mark.full
@pytest.mark.world
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CHECKS)
def test_what_it_says_holds(name, tmp_path):
    from nbclient import NotebookClient

    work = shutil.copytree(NOTEBOOKS, tmp_path / "notebooks", ignore=shutil.ignore_patterns("images"))
    NotebookClient(checked(name), timeout=300, kernel_name="python3", resources={"metadata": {"path": work}}).execute()
