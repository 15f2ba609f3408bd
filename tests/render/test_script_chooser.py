"""A folder to choose a script from."""

from __future__ import annotations

import pytest

from ddpnb.render import script_chooser
from tests.render.reading import HOSTILE, Reading, harmless


def buttons(page):
    return {one.get("data-folder"): one.get("data-value") for one in page.all("button")}


def test_folders_lead_on_and_scripts_fill_the_field():
    page = Reading(script_chooser.chooser("/home/a/work", ["src"], ["train.py"], here="/home/a"))
    assert buttons(page) == {"/home/a": None, "/home/a/work/src": None, "": "work/train.py"}
    assert page.text.index("src/") < page.text.index("train.py")
    elsewhere = Reading(script_chooser.chooser("/data", [], ["train.py"], here="/home/a"))
    assert buttons(elsewhere)[""] == "/data/train.py"


def test_the_root_has_nothing_above_it_and_what_is_wrong_is_said():
    page = Reading(script_chooser.chooser("/", [], [], here="/home/a", error="Permission denied"))
    assert list(buttons(page)) == [""]
    assert "cannot be read: Permission denied" in page.text
    page = Reading(script_chooser.chooser("/", [], [], here="/", left_out=7))
    assert "no Python files here" in page.text and "7 more are not listed" in page.text


@pytest.mark.parametrize("name", [name for name in HOSTILE if name != "a megabyte"])
def test_names_are_only_text(name):
    harmless(script_chooser.chooser(f"/{HOSTILE[name]}", [HOSTILE[name]], [HOSTILE[name]], here="/"))
