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
