"""The lesson card: the script in sight, the answer folded, everything escaped."""

from __future__ import annotations

import pytest

from ddpnb import pitfalls
from ddpnb.render.lesson import lesson, numbered, offered, repaired
from tests.render.reading import HOSTILE, Reading, harmless


@pytest.mark.parametrize("name", pitfalls.names())
def test_of_every_story(name):
    one = pitfalls.get(name)
    script = one.broken.read_text()
    page = Reading(lesson(one.title, script, one.finding, one.why, one.look, one.fix, one.difference))
    assert len(page.all("details")) == 3 and not any("open" in part for part in page.all("details"))
    assert one.finding in page.text and script.splitlines()[0] in page.text


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_nothing_is_taken_for_html(hostile):
    harmless(lesson(*[hostile[:2000]] * 7))


def test_markdown_is_rendered_and_lines_have_numbers():
    page = Reading(
        lesson("A title", "first\nsecond\n", "DDP301", "It is *one* `call`.", "- a\n- b", "**Move** it.", "-a\n+b")
    )
    assert [one["class"] for one in page.all("span") if one.get("class") == "number"] == ["number", "number"]
    assert len(page.all("li")) == 2 and page.all("code") and page.all("i")
    assert "*" not in page.text and "`" not in page.text
    assert [action for action, _ in page.actions] == ["close story", "copy code"]


def test_code_has_colours_and_stays_text():
    page = Reading(numbered('def f():\n    """Two\n    lines."""\n    return "<b>"  # not a tag', "code"))
    assert page.text.endswith('4    return "<b>"  # not a tag')
    kinds = [tag["class"] for tag in page.all("span") if tag.get("class") != "number"]
    assert set(kinds) == {"kw", "str", "com"} and kinds[0] == "kw" and kinds[-1] == "com"


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_code_of_a_stranger(hostile):
    harmless(numbered(hostile[:2000], "code"))


def test_the_list_begins_with_what_is_seen_at_once():
    groups = offered(pitfalls.by_chapter())
    assert sum(map(len, groups.values())) == len(pitfalls.names())
    assert [heading.partition(" ")[0] for heading in groups] == ["3", "4", "5", "6", "7", "1", "2"]
    first = [rows[0] for rows in groups.values()]
    assert first[0][:2] == ("barrier-under-if", "Only rank 0 calls the barrier (easy)")
    assert all(label.endswith("(easy)") for _, label, _ in first), "one in every chapter"
    assert offered(pitfalls.by_chapter("set_epoch EASY")).keys() == {"5 data"}
    assert pitfalls.by_chapter("no-such-words") == {}


def test_after_the_fixed_script_the_difference_and_a_sentence():
    one = pitfalls.get("barrier-under-if")
    page = Reading(repaired(one.title, one.fix, one.difference, ok=True))
    assert "ran without an error" in page.text and "All ranks call save()" in page.text
    assert [tag["class"] for tag in page.all("span") if tag.get("class") in ("ok", "error")].count("ok") == 5
    assert "failed here too" in Reading(repaired(one.title, one.fix, one.difference, ok=False)).text
    assert page.actions == [("close story", {"action": "close story"})]


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_a_difference_stays_text(hostile):
    harmless(repaired(hostile[:2000], hostile[:2000], f"+{hostile[:2000]}\n-{hostile[:2000]}", ok=True))
