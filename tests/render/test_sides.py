"""Where ranks part, as lines and sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.calls import NO_SITE
from ddpnb.recording.parting import Harmless, Way
from ddpnb.render import sides as shown
from tests.render.partings import FILE, SKIPS, SOURCE, at


def said(*ways: Way, **changes: object) -> list[str]:
    return [side.words for side in shown.sides(replace(SKIPS, odd=(), ways=ways, **changes))]


def lines(parting, context=2):
    return [line and (line.number, line.beside, line.words) for line in shown.lines(parting, context)]


def test_the_lines_around_with_the_ranks_that_came_there():
    assert lines(SKIPS) == [
        (6, "", "batch = next(it)"),
        (7, "", ""),
        (8, "ranks 0-3 part", "if not batch:"),
        (9, "rank 2", "    continue"),
        (10, "ranks 0, 1, 3", "loss = model(batch).sum()"),
    ]
    assert [line.role for line in shown.lines(SKIPS)] == ["", "", "", "error", "ok"]
    assert [line[0] for line in lines(SKIPS, 1)] == [8, 9, 10], "no empty line at an end"


def test_a_way_that_leads_far_away_is_shown_without_what_lies_between():
    loop = replace(SKIPS, site=at(5), ways=(Way((0,), at(6)), Way((1,), at(12))), source=()).quoted({FILE: SOURCE})
    assert [line and line[0] for line in lines(loop, 1)] == [4, 5, 6, None, 12]
    loop = replace(loop, ways=(Way((0,), at(6)), Way((1,), at(9))))
    assert [line and line[0] for line in lines(loop, 2)] == [3, 4, 5, 6, 7, 8, 9], "one line is not left out"


def test_without_the_source_the_expression_remains():
    assert lines(replace(SKIPS, source=())) == [
        (8, "ranks 0-3 part", "not batch"),
        (9, "rank 2", ""),
        (10, "ranks 0, 1, 3", ""),
    ]


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (Way((0,), at(9)), "line 9"),
        (Way((0,), at(9), "left the loop"), "line 9, left the loop"),
        (Way((0,), NO_SITE, "raised ValueError"), "raised ValueError"),
        (Way((0,)), "left train"),
        (Way((0,), at(16, "main")), "line 16 in main"),
        (Way((0,), at(3, "load", "/home/user/data.py")), "/home/user/data.py:3 in load"),
        (Way((0,), at(9), before={0: (0, 14)}), "line 9, for the first time in 15"),
        (Way((0,), at(9), before={0: (14, 14)}), "line 9, as always (15 times)"),
        (Way((0, 1), at(9), before={0: (14, 14), 1: (12, 12)}), "line 9, as always (13 to 15 times)"),
        (Way((0,), at(9), before={0: (3, 14)}), "line 9, as in 3 of 14 times before"),
        (Way((0,), at(9), before={0: (0, 0)}), "line 9, at this decision for the first time"),
        (
            Way((0, 1), at(9), before={0: (0, 14), 1: (14, 14)}),
            "line 9, rank 0 for the first time in 15, rank 1 as always (15 times)",
        ),
    ],
)
def test_where_a_side_went_and_how_often_it_had_before(way, words):
    assert said(way) == [words]


def test_a_side_that_does_not_make_the_call_of_the_others():
    called = Way((0,), at(3, "save", "/home/user/io.py"), "called save")
    assert said(called, Way((1,), at(8)), kind="call") == ["called save, /home/user/io.py:3 in save", "no such call"]


def test_a_rank_that_left_what_it_had_done_before():
    own = replace(SKIPS, ways=(Way((2,), at(9), before={2: (0, 14)}), Way((), at(10))))
    assert shown.title(own) == "Rank 2 left its usual way at a decision"
    assert [(side.who, side.words) for side in shown.sides(own)] == [
        ("rank 2", "line 9, for the first time in 15"),
        ("before", "line 10"),
    ]
    assert [line[1] for line in lines(own)] == ["", "", "rank 2", "rank 2", "before"]


def test_after_equal_decisions_the_sides_differ_by_their_calls():
    assert said(Way((0,)), kind="operation") == ["other calls"]


def test_those_who_left_the_others_come_first():
    assert [(side.who, side.odd) for side in shown.sides(SKIPS)] == [("rank 2", True), ("ranks 0, 1, 3", False)]


def test_calls_and_ways_beyond_a_few_are_counted():
    ways = tuple(Way((n,), at(9), calls=("a", "b", "c", "d", "e")) for n in range(20))
    many = shown.sides(replace(SKIPS, odd=(), ways=ways))
    assert many[0].calls == "a, b, c and 2 more"
    assert len(many) == 9 and many[-1].words == "12 more ways"
    assert shown.sides(replace(SKIPS, ways=(Way((0,), calls=("a", "b")),)))[0].calls == "a and b"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({0: "4", 1: "4", 2: "0", 3: "4"}, "x = 0 on rank 2, 4 on the others (now)"),
        ({0: "4", 2: "0"}, "x = 0 on rank 2, 4 on rank 0 (now)"),
        ({0: "4", 1: "4", 2: "4", 3: "4"}, "x = 4 on all (now)"),
        ({2: "[]"}, "x = [] on rank 2 (now)"),
        (
            {rank: str(rank) for rank in range(9)},
            "x = 2 on rank 2, 0 on rank 0, 1 on rank 1, 3 on rank 3, 5 more values on others (now)",
        ),
    ],
)
def test_values_by_rank(values, words):
    assert shown.values(replace(SKIPS, values={rank: {"x": value} for rank, value in values.items()})) == [words]


def test_names_that_differ_come_first_and_only_some_are_shown():
    values = {rank: {"same": "1", "other": str(rank)} for rank in (0, 2)}
    assert [one.split()[0] for one in shown.values(replace(SKIPS, values=values))] == ["other", "same"]
    assert len(shown.values(replace(SKIPS, values={0: {str(n): "1" for n in range(50)}}))) == 6


def test_what_was_harmless():
    assert shown.harmless(SKIPS) == ["/home/user/train.py:3 `rank == 0` (rank 0: line 4; ranks 1-3: line 5)"]
    own = Harmless(at(3), "rank == 0", (((), at(4)), ((2,), at(5))))
    assert shown.harmless(replace(SKIPS, harmless=(own,)))[0].endswith("(before: line 4; rank 2: line 5)")
    one_line = Harmless(at(3), "rank == 0", (((0,), at(3)), ((1, 2, 3), at(3))))
    assert shown.harmless(replace(SKIPS, harmless=(one_line,))) == [
        "/home/user/train.py:3 `rank == 0` (rank 0 | ranks 1-3)",
    ]
    many = shown.harmless(replace(SKIPS, harmless=(Harmless(at(3), ""),) * 7))
    assert many == [*["/home/user/train.py:3"] * 3, "and 4 more"]


def test_from_where_it_was_called():
    callers = (at(1, "<module>", "<string>"), at(30, "<module>"), at(20, "main"), at(16, "?"))
    here = "/home/user/train.py:8 in train, called from"
    assert shown.where(SKIPS) == f"{here} /home/user/train.py:16 in main"
    assert shown.where(replace(SKIPS, callers=callers)) == (
        f"{here} /home/user/train.py:16, /home/user/train.py:20 in main and 1 more"
    )
