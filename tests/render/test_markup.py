"""Pieces of HTML: what goes in as text comes out as text."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import ddpnb
from ddpnb.recording.calls import NO_SITE, Site
from ddpnb.render import markup
from tests.render.reading import HOSTILE, Reading, harmless


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_everything_comes_out_escaped(hostile):
    short = hostile[:1000]
    seen = harmless(
        markup.text(hostile, 100)
        + markup.button(short, short, title=short, rank=short)
        + markup.field(short, short, short, hint=short)
        + markup.number(short, short, short, hint=short)
        + markup.choice(short, short, [(short, short)], short)
        + markup.rank_boxes(4, legend=short)
        + markup.place(Site(hostile, 3, hostile))
    )
    assert {name for name, _ in seen.tags} <= {"button", "label", "input", "select", "option", "fieldset", "legend", "code", "a"}  # fmt: skip


def test_a_text_is_as_long_as_it_may_be():
    assert markup.text("x" * 1000, 10) == "x" * 10 + "…"
    assert markup.text("x" * 10, 10) == "x" * 10
    assert markup.text("<" * 1000, 3) == "&lt;&lt;&lt;…"


def test_a_megabyte_of_slashes_costs_no_more_than_what_is_shown():
    assert markup.text("/" * (1 << 20), 80) == "/" * 80 + "…"


def test_paths_are_told_from_the_working_directory():
    assert markup.text(f"{os.getcwd()}/train.py", 20) == "train.py"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, ' a="0"'), (0.0, ' a="0.0"'), (1, ' a="1"'), ("", ' a=""'), (True, " a"), (None, ""), (False, "")],
)
def test_zero_is_a_value_and_nothing_is_none(value, shown):
    assert markup.attributes({"a": value}) == shown


def test_rank_zero_can_be_chosen():
    boxes = Reading(markup.rank_boxes(3, chosen=[0])).all("input")
    assert [one["value"] for one in boxes] == ["0", "1", "2"]
    assert ["checked" in one for one in boxes] == [True, False, False]


def test_many_ranks_are_written_instead_of_ticked():
    seen = Reading(markup.rank_boxes(17, chosen=[3, 1]))
    assert seen.named("ranks")["value"] == "1,3"
    assert len(Reading(markup.rank_boxes(16)).all("input")) == 16


@pytest.mark.parametrize("name", markup._SHAPES)
def test_an_icon_is_no_word_for_a_screen_reader(name):
    (svg,) = Reading(markup.icon(name)).all("svg")
    assert svg["aria-hidden"] == "true"


def test_a_button_is_a_real_one_and_carries_its_action_and_values():
    (found,) = Reading(markup.button("heal", "heal", image="heal", number=0, enabled=False)).all("button")
    assert found["type"] == "button" and "disabled" in found
    assert (found["data-action"], found["data-number"]) == ("heal", "0")


def test_fields_have_labels():
    shown = markup.field("arguments", "a") + markup.number("calls", "n", 1, least=0) + markup.choice("op", "o", [])
    seen = Reading(shown)
    assert len(seen.all("label")) == 3 and seen.text == "argumentscallsop"
    assert (seen.named("n")["min"], seen.named("n")["value"]) == ("0", "1")


def test_the_chosen_option_is_selected():
    seen = Reading(markup.choice("op", "op", [("", "any"), ("send", "send")], "send", change="kind"))
    assert ["selected" in one for one in seen.all("option")] == [False, True]
    assert seen.named("op")["data-change"] == "kind"


# -- places


def test_a_file_below_the_working_directory_is_linked_as_jupyterlab_opens_it():
    seen = Reading(markup.place(Site(f"{os.getcwd()}/my dir/train.py", 9, "main")))
    assert seen.all("a")[0]["href"] == "my%20dir/train.py#line=8"  # JupyterLab counts from 0
    assert seen.text == "my dir/train.py:9"


@pytest.mark.parametrize("file", ["<stdin>", "<ipython-input-3-abc>", "x" * 5000])
def test_what_is_no_file_stays_text(file):
    assert not Reading(markup.place(Site(file, 9, "main"))).all("a")


@pytest.mark.parametrize(
    ("file", "shown", "whole"),
    [
        ("/usr/lib/python/x.py", "…/python/x.py:9", "/usr/lib/python/x.py:9"),
        ("/dev/shm/ddpnb-1-abc/In[3].py", "In[3]:9", "In[3]:9"),
        ("/tmp/ddpnb-1-abc/cell3.py", "cell3.py:9", "cell3.py:9"),
    ],
)
def test_what_only_a_widget_can_open_has_no_address(file, shown, whole):
    seen = Reading(markup.place(Site(file, 9, "main")))
    link = seen.all("a")[0]
    assert (seen.text, link["title"], link["data-file"], link["data-line"]) == (shown, whole, file, "9")
    assert "href" not in link


def test_a_file_whose_name_begins_as_a_cells_is_a_file():
    assert Reading(markup.place(Site("cellular.py", 9, "main"))).all("a")


def test_no_place_is_nothing():
    assert markup.place(NO_SITE) == ""


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("train.py --steps 20 --fixed", ["--steps", "--fixed"]),
        ("Run it with: torchrun --nproc-per-node=2 <x>.", ["--nproc-per-node=2"]),
        ("of ranks 0-3, a well-kept - and -1", []),
        (f"--{'x' * 200}", []),
    ],
)
def test_no_line_ends_within_an_option(said, kept):
    shown = markup.words(said)
    assert Reading(shown).text == said
    assert re.findall('<span class="word">(.*?)</span>', shown) == kept


# -- quantities


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-1, "0.0 s"), (0, "0.0 s"), (9.94, "9.9 s"), (10, "10 s"), (119.9, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h"), (10**9, "277777 h")],
)  # fmt: skip
def test_spans(seconds, words):
    assert markup.span(seconds) == words


def test_an_age_goes_on_in_the_page():
    (time,) = Reading(markup.age(3.21)).all("time")
    assert time["data-age"] == "3.21"
    assert Reading(markup.age(-5)).all("time")[0]["data-age"] == "0.00"


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 KB"), (1_500_000, "1.5 MB"), (999_999_999, "1000 MB"), (1_200_000_000, "1.2 GB"), (5e14, "500000 GB")],
)  # fmt: skip
def test_amounts(count, words):
    assert markup.amount(count) == words


def test_what_escapes_is_in_one_place():
    """The writers of documents, and the pieces of forms, ask ``markup``; colours of code have their own elements."""
    room = Path(ddpnb.__file__).parent
    own = {path.relative_to(room).as_posix() for path in room.rglob("*.py") if "html import escape" in path.read_text()}
    assert own == {"render/markup.py", "render/code.py"}
