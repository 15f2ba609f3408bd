"""Windows of executed lines that ranks have in common."""

from __future__ import annotations

from ddpnb.recording.calls import Site
from ddpnb.recording.executed_lines import ExecutedLine, ExecutedLines, Window, common_windows


def lines(*windows: tuple[int, int, tuple[int, ...]]) -> ExecutedLines:
    """Executed lines by hand: for each window the collectives and the steps begun, and the lines of train.py."""
    every = sorted({line for *_, ran in windows for line in ran})
    numbers = {line: [n for n, (*_, ran) in enumerate(windows, 1) if line in ran] for line in every}
    return ExecutedLines(
        tuple(ExecutedLine(site(line), ns[0], ns[-1], len(ns)) for line, ns in numbers.items()),
        tuple(Window(n, 10 * n, calls, steps, n - 1) for n, (calls, steps, _) in enumerate(windows, 1)),
        tuple(tuple(every.index(line) for line in ran) for *_, ran in windows),
    )


def site(line: int) -> Site:
    return Site("train.py", line, "main")


def test_windows_from_one_common_place_to_the_next():
    one = lines((0, 0, (1, 2)), (1, 0, (3,)), (2, 1, (4,)))
    other = lines((0, 0, (1, 2, 3)), (2, 1, (4, 5)))
    first, last = common_windows({0: one, 1: other})
    assert (first.calls, first.steps, last.calls, last.steps) == (0, 0, 2, 1)
    assert first.lines == {0: {site(1), site(2), site(3)}, 1: {site(1), site(2), site(3)}}
    assert first.only_some == frozenset()
    assert last.only_some == {site(5)}
    assert (last.first, last.last) == ({0: 3, 1: 2}, {0: 3, 1: 2})


def test_ranks_without_a_common_place_have_no_common_window():
    assert common_windows({0: lines((4, 0, (1,))), 1: lines((5, 0, (1,)))}) == ()
    assert common_windows({}) == ()


def test_windows_of_a_time():
    ran = lines((0, 0, (1,)), (1, 0, (2,)), (2, 0, (3,)))  # they begin at 10, 20 and 30 ns
    assert [window.number for window in ran.during(20, 25)] == [2]
    assert [window.number for window in ran.during(15, 30)] == [1, 2, 3]
    assert [window.number for window in ran.during(0, 12)] == [1]
    assert ran.during(0, 5) == ()
