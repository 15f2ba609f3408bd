"""The lesson card: the script in sight, the answer folded, everything escaped."""

from __future__ import annotations

import pytest

from ddpnb import pitfalls
from ddpnb.render.lesson import lesson
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
    assert page.actions == [("close story", {"action": "close story"})]
