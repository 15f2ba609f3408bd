"""The last state of a panel beside its widget: what is published, when, and what nbconvert makes of a saved notebook."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

from ddpnb.notebook import kept as kept_module
from ddpnb.notebook.kept import Kept
from tests.rules.recordings import Rank, diagnose, line, record

VIEW = {"application/vnd.jupyter.widget-view+json": {"model_id": "m"}, "text/plain": "all of it"}


class Page:
    """What a kernel has published."""

    def __init__(self):
        self.outputs = []
        self.came = threading.Semaphore(0)

    def publish(self, data, transient=None, update=False):
        self.outputs.append((data, (transient or {}).get("display_id"), update))
        self.came.release()


@pytest.fixture
def notebook(monkeypatch):
    page = Page()
    shell = SimpleNamespace(kernel=object(), display_pub=page)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    page.shell = shell
    return page


def test_the_widget_and_its_state_are_two_outputs(notebook):
    kept = Kept(lambda: ("<p>hang</p>", "hang"))
    assert kept.show(VIEW)
    (live, none, _), (state, name, update) = notebook.outputs
    assert live["text/plain"] == "" and none is None
    assert "<p>hang</p>" in state["text/html"] and state["text/plain"] == "hang"
    assert kept.number in name and not update


def test_a_change_replaces_the_state_and_never_the_widget(notebook):
    states = iter([("one", ""), ("two", ""), ("two", ""), ("three", "")])
    kept = Kept(lambda: next(states))
    kept.show(VIEW)
    notebook.shell.display_pub = None  # another cell captures what is displayed
    for _ in range(2):
        notebook.came.acquire(timeout=5)
    for _ in range(3):
        kept.changed(urgent=True)  # together: written once
    assert notebook.came.acquire(timeout=20)
    kept._write()  # the same again: not written
    kept.changed(urgent=True)
    assert notebook.came.acquire(timeout=20)
    assert ["one" in notebook.outputs[1][0]["text/html"], *(update for _, _, update in notebook.outputs[2:])] == [
        True
    ] * 3
    assert "three" in notebook.outputs[-1][0]["text/html"]
    assert len({name for _, name, _ in notebook.outputs[1:]}) == 1


def test_each_change_is_written_after_a_while(notebook, monkeypatch):
    monkeypatch.setattr(kept_module, "_SOON_S", 0.01)
    states = iter(["one", "two", "three"])
    kept = Kept(lambda: (next(states), ""))
    kept.show(VIEW)
    kept._allowed = 0.0
    for _ in range(2):
        notebook.came.acquire(timeout=5)
    for state in ("two", "three"):
        kept.changed()
        assert notebook.came.acquire(timeout=20)
        assert state in notebook.outputs[-1][0]["text/html"]
        kept._allowed = 0.0


def test_a_state_that_cannot_be_read_is_left_as_it_was(notebook):
    states = iter([("one", "")])
    kept = Kept(lambda: next(states))
    kept.show(VIEW)
    kept._write()
    assert len(notebook.outputs) == 2


def test_without_a_page_nothing_is_done(monkeypatch):
    kept = Kept(lambda: pytest.fail("asked for"))
    kept.changed(urgent=True)
    assert kept._timer is None
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not kept.show(VIEW)


CELLS = (
    'import ddpnb\nrecording = ddpnb.load("hang.ddpnb")\nddpnb.show(recording)',
    "recording.plot()",
    "ax = recording.plot()\nax.set_title('kept')",
    "import matplotlib.pyplot as plt\nfigure, mine = plt.subplots()\nrecording.plot(ax=mine);",
)


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_saved_notebook_shows_all_without_a_kernel_and_each_plot_once(tmp_path):
    import nbformat  # not above: it takes 7 s of each process that collects tests
    from nbclient import NotebookClient
    from nbconvert import HTMLExporter

    made = record(
        Rank(0, 2).calls("all_reduce", line(5)).waits("all_reduce", line(5)),
        Rank(1, 2).calls("all_reduce", line(5)).finishes(),
    )
    made.save(tmp_path / "hang.ddpnb")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS])
    NotebookClient(
        book,
        timeout=60,
        kernel_name="python3",
        store_widget_state=False,
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    shown, *plots = [[output.data for output in cell.outputs if "data" in output] for cell in book.cells]
    assert [*map(sorted, shown[-2:])] == [
        [*VIEW],
        ["text/html", "text/plain"],
    ]  # before them perhaps how far it has read
    for outputs in plots:
        assert sum("image/png" in data for data in outputs) == 1
    html, _ = HTMLExporter().from_notebook_node(book)
    assert diagnose(made).findings[0].code in html
    assert 'alt="The time line' in html
    assert "all_reduce #2 of default_pg, for rank 1" in html
