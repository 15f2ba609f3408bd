from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ddpnb.recording.calls import NO_SITE
from ddpnb.recording.parting import Parting, Way
from tests.render.partings import FILE, SKIPS, SOURCE, at

LEAVES = replace(SKIPS, ways=(Way((0,), NO_SITE, "left the loop"), Way((1,), at(11))))


@pytest.mark.parametrize("parting", [SKIPS, LEAVES])
def test_it_is_read_back_from_its_json(parting):
    assert Parting.from_json(json.loads(json.dumps(parting.to_json()))) == parting


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kind", "riddle"),
        ("kind", []),
        ("file", 3),
        ("line", "3"),
        ("text", None),
        ("ways", None),
        ("ways", [{"ranks": [0]}]),
        ("ways", ["x"]),
        ("odd", ["2"]),
        ("values", [["a", "b"]]),
        ("values", {"x": {}}),
        ("values", {"0": {"a": 3}}),
        ("callers", "abc"),
        ("callers", [None, 3]),
        ("harmless", [{}]),
        ("source", [1]),
        ("source", [[1, 2, 3]]),
        ("source", [["1", "x"]]),
    ],
)
def test_what_is_no_parting_is_refused(key, value):
    data = {**SKIPS.to_json(), key: value}
    with pytest.raises((KeyError, TypeError, ValueError)):
        Parting.from_json(data)
    for missing in [one for one in data if one != "source"]:
        with pytest.raises((KeyError, TypeError, ValueError)):
            Parting.from_json({name: one for name, one in SKIPS.to_json().items() if name != missing})


def test_it_quotes_the_lines_around_and_those_to_which_ways_lead():
    text = "\n".join(f"line {number} {'x' * 1000}" for number in range(1, 101))
    far = replace(SKIPS, site=at(20), ways=(Way((0,), at(90)), Way((1,), at(21)), Way((2,), at(50, "other"))))
    quoted = far.quoted({FILE: text})
    assert [number for number, _ in quoted.source] == [*range(12, 29), 90]
    assert quoted.source[0][1].startswith("line 12 x") and len(quoted.source[0][1]) == 300
    assert [number for number, _ in replace(SKIPS, site=at(1)).quoted({FILE: SOURCE}).source] == list(range(1, 11))


def test_of_a_file_that_is_not_known_or_was_edited_nothing_is_quoted():
    bare = replace(SKIPS, source=())
    assert bare.quoted({}).source == bare.quoted({FILE: SOURCE}, (FILE,)).source == ()


def test_all_its_texts_can_be_changed():
    shown = json.dumps(SKIPS.mapped(lambda text: text.replace("/home/user", "~").replace("batch", "X")).to_json())
    assert "/home/user" not in shown and "~/train.py" in shown and "if not X" in shown
    assert json.dumps(LEAVES.mapped(str.upper).to_json()).count('"to": null') == 1


def test_a_way_is_new_where_none_of_its_ranks_had_gone_it_before():
    assert [way.new for way in SKIPS.ways] == [False, True]
    assert not Way((0,), before={0: (0, 0)}).new and not Way((0,)).new
