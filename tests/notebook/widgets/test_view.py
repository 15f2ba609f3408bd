"""What all widgets are: traits in, messages out, and a text for whoever shows no widgets."""

from __future__ import annotations

import pytest

from ddpnb.notebook.widgets import view
from ddpnb.notebook.widgets.fragment import Fragment
from ddpnb.notebook.widgets.timeline import Timeline
from ddpnb.notebook.widgets.view import STATIC, View, module, styles

SCRIPTS = sorted(path.name for path in STATIC.glob("*.js"))


class Heard(list):
    """What a widget has told of."""

    def __call__(self, action, values):
        self.append((action, values))


@pytest.fixture
def heard():
    return Heard()


def page_sends(widget, content):
    """As the page would send it."""
    widget._handle_custom_msg(content, [])


def test_an_action_comes_with_its_values_as_texts(heard):
    page_sends(View(heard), {"action": "step", "values": {"n": 2, "ranks": "0,1", "on": True, "none": None}})
    assert heard == [("step", {"n": "2", "ranks": "0,1", "on": "True", "none": "None"})]


@pytest.mark.parametrize("content", [None, "step", 7, [], [["action", "step"]], b"x"])
def test_a_message_that_is_no_mapping_is_nothing(heard, content):
    page_sends(View(heard), content)
    assert heard == []


@pytest.mark.parametrize("values", [None, "x", 3, ["a"], [["a", "b"]]])
def test_values_that_are_no_mapping_are_none(heard, values):
    page_sends(View(heard), {"action": "step", "values": values})
    assert heard == [("step", {})]


def test_an_action_without_a_name_is_an_empty_one(heard):
    page_sends(View(heard), {})
    assert heard == [("", {})]


def test_what_is_too_long_is_cut(heard):
    page_sends(View(heard), {"action": "a" * 10_000, "values": {"n" * 10_000: "v" * (1 << 20)}})
    ((action, values),) = heard
    assert len(action) == 100
    assert [(len(name), len(value)) for name, value in values.items()] == [(100, view._LONGEST)]


def test_a_message_with_too_many_values_is_cut(heard):
    page_sends(View(heard), {"action": "a", "values": {str(number): "x" for number in range(100_000)}})
    assert len(heard[0][1]) == 200


def test_whoever_is_not_listened_to_may_send_what_it_wants():
    page_sends(View(), {"action": "step"})


@pytest.mark.parametrize("kind", [View, Fragment, Timeline])
def test_traits_that_there_are_not_are_refused(kind):
    with pytest.raises(TypeError, match=f"{kind.__name__} has no colour, nonsense"):
        kind(nonsense=1, colour="red")


@pytest.mark.parametrize("widget", [Fragment("<p>x</p>", "in words"), Timeline()])
def test_the_text_is_shown_where_there_are_no_widgets(widget):
    data, _ = widget._repr_mimebundle_()
    assert data["text/plain"] == widget.text == repr(widget) != ""
    assert "application/vnd.jupyter.widget-view+json" in data


def test_a_beat_tells_the_page_that_somebody_is_there(monkeypatch):
    sent = []
    monkeypatch.setattr(View, "send", lambda self, content, buffers=None: sent.append(content))
    View().beat()
    assert sent == [{"kind": "beat"}]


# -- scripts and styles


def test_a_script_is_one_module_without_imports():
    made = module("patch.js", "fragment.js")
    assert "import " not in [line[:7] for line in made.splitlines()]
    for name in ("patch.js", "fragment.js"):
        kept = [line for line in (STATIC / name).read_text().splitlines() if not line.startswith("import ")]
        assert "\n".join(kept) in made


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_import_stands_in_one_line_and_names_a_file(name):
    """Or ``module`` would leave half of it."""
    lines = [line for line in (STATIC / name).read_text().splitlines() if line.startswith("import")]
    for line in lines:
        assert line.startswith("import {") and line.endswith('.js";'), line
        assert (STATIC / line.split('"')[1]).is_file()


@pytest.mark.parametrize("kind", [Fragment, Timeline])
def test_no_name_is_declared_twice_in_a_widgets_module(kind):
    names = [
        line.removeprefix("export ").split()[1].split("(")[0]
        for line in str(kind._esm).splitlines()
        if line.removeprefix("export ").startswith(("function ", "const ", "let ", "class "))
    ]
    twice = sorted({name for name in names if names.count(name) > 1 and name.isidentifier()})
    assert not twice


def test_nothing_is_loaded_from_elsewhere():
    """It must work in a cluster without a way out."""
    for text in (styles(), *((STATIC / name).read_text() for name in SCRIPTS)):
        addresses = text.replace("http://www.w3.org/", "")
        assert "http://" not in addresses and "https://" not in addresses and "@import" not in addresses


def test_the_colours_come_first():
    assert styles().startswith(".ddpnb{--ddpnb-fg:")
