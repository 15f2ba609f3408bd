"""Functions of the notebook see the variables of the rank, and leave theirs there."""

from __future__ import annotations

import pickle
import sys
from types import ModuleType

import pytest

from ddpnb.recorder.process.functions import SentFunctions
from ddpnb.world.run_requests import of_function


class Notebook:
    """Cells of the notebook, and a rank on which its functions run."""

    def __init__(self, main, folder):
        self.main = main
        self.folder = folder
        self.functions = SentFunctions()
        self.rank = {"__name__": "__main__"}

    def cell(self, lines):
        exec(lines, vars(self.main))

    def run(self, name, *args):
        _, payload = of_function(vars(self.main)[name], args, self.folder)
        return self.functions.call(payload, self.rank)()


@pytest.fixture
def notebook(monkeypatch, tmp_path):
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    return Notebook(main, str(tmp_path))


def test_what_the_notebook_has_not_is_the_ranks(notebook):
    notebook.cell("def train(): return model * 2")
    notebook.rank["model"] = 21
    assert notebook.run("train") == 42


def test_a_global_of_a_function_is_there_for_the_next(notebook):
    notebook.cell(
        "def make():\n    global model\n    model = [0]\ndef train():\n    model[0] += 1\n    return model[0]"
    )
    notebook.run("make")
    assert [notebook.run("train"), notebook.run("train")] == [1, 2]
    assert notebook.rank["model"] == [2]


def test_what_the_notebook_defines_comes_along_and_is_edited_there(notebook):
    notebook.cell("rate = 0.1\ndef helper(): return rate\ndef train(): return helper()")
    assert notebook.run("train") == 0.1
    notebook.cell("rate = 0.2")
    assert notebook.run("train") == 0.2
    assert notebook.rank["rate"] == 0.2 and notebook.rank["helper"]() == 0.2


def test_a_variable_of_a_cell_with_the_same_name_is_put_back(notebook):
    notebook.cell("model = 'of the notebook'\ndef train(): return model")
    notebook.rank["model"] = "in training"
    assert notebook.run("train") == "of the notebook"
    assert notebook.rank["model"] == "in training"


def test_one_that_the_function_sets_stays(notebook):
    notebook.cell("step = 0\ndef train():\n    global step\n    step += 1\n    raise KeyError")
    notebook.rank["step"] = 7
    with pytest.raises(KeyError):
        notebook.run("train")
    assert notebook.rank["step"] == 1


def test_a_class_of_the_notebook_goes_on_finding_what_it_uses(notebook):
    notebook.cell(
        "import math\nclass Net:\n    def area(self): return math.pi\ndef make():\n    global net\n    net = Net()"
    )
    notebook.run("make")
    assert notebook.rank["net"].area() == pytest.approx(3.14159, abs=1e-5)


def test_functions_of_modules_are_sent_by_their_names(notebook):
    _, payload = of_function(pickle.dumps, ([1],), notebook.folder)
    assert pickle.loads(notebook.functions.call(payload, notebook.rank)()) == [1]
    assert set(notebook.rank) == {"__name__"}
