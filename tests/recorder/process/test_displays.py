"""What a cell displays, from the rank that writes it to the launcher that reads it."""

from __future__ import annotations

import builtins
import json
import os
import sys

import IPython
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import HTML, Image, Markdown, clear_output, display, update_display

from ddpnb.ranks.observe import displays as reading
from ddpnb.recorder.holds.release import Release
from ddpnb.recorder.process import displays, script
from ddpnb.recorder.process.notebook import hidden
from ddpnb.recorder.process.process_state import like_a_prompt
from ddpnb.render.cells import bundles, fold
from ddpnb.world.run_output import Log

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)


@pytest.fixture
def shell(monkeypatch):
    monkeypatch.setattr(sys, "displayhook", sys.displayhook)
    before = dict(vars(builtins))
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()
    for name in set(vars(builtins)) - set(before):
        delattr(builtins, name)


@pytest.fixture
def cell(shell, tmp_path, capfd):
    """Run a cell as a rank does; what the notebook shows of it, each as text or as the types that it has."""
    shown = displays.Displays(shell)

    def run(code, **names):
        log = run.log = tmp_path / f"rank{run.number}.log"
        run.number += 1
        path = tmp_path / "cell.py"
        path.write_text(code)
        with hidden({}, prompt=True), like_a_prompt(str(log), {}), shown.to(str(log)):
            ended = script.run(script.cell(str(path), {"display": display, **names}, shown.value), Release())
            shown.end()
        assert ended.ending["how"] == "finished", ended.ending
        read = Log(str(log)).read()
        found = bundles(fold({0: read}))
        return [
            {**one.data} if "ddpnb-cell" not in one.data.get("text/html", "") else one.data["text/plain"]
            for one in found
        ]

    run.number = 0
    return run


def test_text_and_displays_in_their_order(cell):
    code = "print('before')\ndisplay(html)\nprint('between')\ndisplay('text alone')\nmarkdown"
    assert cell(code, html=HTML("<b>x</b>"), markdown=Markdown("**y**")) == [
        "rank 0:\nbefore",
        {"text/plain": "<IPython.core.display.HTML object>", "text/html": "<b>x</b>"},
        "between\n'text alone'",
        {"text/plain": "<IPython.core.display.Markdown object>", "text/markdown": "**y**"},
    ]
    log = cell.log.read_text()  # whoever reads only text finds them there
    assert log.splitlines()[1] == "<IPython.core.display.HTML object>"


def test_nobody_else_finds_a_shell(cell):
    assert cell("import IPython; IPython.get_ipython() is None") == ["rank 0:\nTrue"]
    assert isinstance(IPython.get_ipython(), InteractiveShell)
    assert IPython.core.interactiveshell.InteractiveShell is InteractiveShell


def test_an_update_replaces_and_a_clear_removes(cell):
    code = "print('old')\nclear()\ndisplay(html('1'), display_id='a')\nupdate(html('2'), display_id='a')\nprint('end')"
    shown = cell(code, clear=clear_output, html=HTML, update=update_display)
    assert [one if isinstance(one, str) else one["text/html"] for one in shown] == ["rank 0:", "2", "end"]
    code = "for step in range(3):\n    clear(wait=True)\n    print('step', step)\nclear(wait=True)"
    assert cell(code, clear=clear_output) == ["rank 0:\nstep 2"]  # the last one waits for what never comes


def test_a_picture_and_what_cannot_be_sent(cell):
    (_, shown) = cell("display(image)", image=Image(PIXEL))
    assert shown["image/png"].startswith("iVBORw0KGgo")
    (_, shown) = cell("display({'a/b': object(), 'text/html': 'x', widget: {}}, raw=True)", widget=displays._WIDGET)
    assert set(shown) == {"text/html"}


def test_open_figures_come_at_the_end_and_shown_ones_where_they_are(cell):
    plots = pytest.importorskip("matplotlib.pyplot")
    plots.close("all")
    backend, before = os.environ.get("MPLBACKEND"), plots.get_backend()
    code = (
        "import matplotlib; matplotlib.use('module://matplotlib_inline.backend_inline')\n"
        "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nprint('x')\nplt.figure();\nprint('y')\nplt.plot([2]);"
    )
    shown = cell(code)
    assert [one if isinstance(one, str) else sorted(one) for one in shown] == [
        "rank 0:",
        ["image/png", "text/plain"],
        "x\ny",
        ["image/png", "text/plain"],
    ]
    assert os.environ.get("MPLBACKEND") == backend
    plots.switch_backend(before)


@pytest.mark.parametrize(
    ("source", "quiet"),
    [("x;", True), ("x; # no", True), ("x", False), ("'x;'", False), ("x # ;", False), ("if 1:\n    x;\n", True)],
)
def test_a_semicolon_hides_the_value(source, quiet):
    assert displays.is_quiet(source) is quiet


def test_a_bar_that_is_updated_for_ever_stays_small(cell, monkeypatch):
    monkeypatch.setattr(displays, "MAX_BYTES", 4000)
    code = (
        "bar = display(html('0'), display_id=True)\nfor step in range(500):\n    bar.update(html(str(step) * 9))\n"
        "display(html('x' * 3000))"
    )
    shown = cell(code, html=HTML)
    assert cell.log.with_suffix(".displays").stat().st_size < 5000
    assert shown[1]["text/html"] == "499" * 9
    assert "too many displays in this cell" in shown[2] and "HTML object" in shown[2]


def test_a_broken_file_of_displays_is_read_as_far_as_it_is_valid(tmp_path):
    good = {"new": "", "data": {"text/plain": "t", "a" * 300: "x", "b/c": None}, "from": 3, "to": 5}
    lines = [
        "not json", "[]", "3", json.dumps({"new": "", "data": [], "from": 0, "to": 1}), json.dumps(good | {"from": 9}),
        json.dumps(good), json.dumps(good | {"from": 4, "to": 6}), json.dumps({"update": "zz", "data": {}}), "[" * 9999,
        json.dumps({"clear": True}), '{"new": "half',
    ]  # fmt: skip
    path = tmp_path / "rank0.displays"
    path.write_text("\n".join(lines))
    file = reading.DisplayFile(str(path))
    file.read()
    assert [(one.start, one.end, dict(one.display.data)) for one in file.shown] == [(3, 5, {"text/plain": "t"})]


def test_a_rank_cannot_be_asked():
    with hidden({}), pytest.raises(EOFError, match=r"ranks have no keyboard.*world\.execute"):
        input("name? ")
