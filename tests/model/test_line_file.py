"""The file of executed lines: what is written is read, also by who does not trust it."""

from __future__ import annotations

import random

import pytest

from ddpnb.model import line_file as layout
from ddpnb.model.line_file import LineReader
from ddpnb.recorder.line_file import LineFile


@pytest.fixture
def file(tmp_path):
    file = LineFile(str(tmp_path / "rank0.lines"))
    file.new_run(1)
    return file


def data(file):
    return bytes(file._memory)


def read(file, run=1, **more):
    return LineReader(data(file)).read(run, **more)


def hit(file, *lines, path="train.py"):
    """These lines ran in the current window."""
    for line in lines:
        row = file.rows.get(path, {}).get(line)
        row = file.add(path, "main", line) if row is None else row
        if row >= 0 and file.columns[layout.LAST][row] != file.window:
            file.columns[layout.LAST][row] = file.window
            file.columns[layout.COUNT][row] += 1
            number = file.next_hit()
            file.hits[number % layout.HITS] = file.window << 32 | row
            file.head[layout.HITTED] = number + 1


def numbers(lines, window):
    return [site.line for site in lines.of(window)]


def test_lines_in_the_order_in_which_they_ran_window_by_window(file):
    hit(file, 3, 4, 9)
    file.open_window(calls=1, steps=0)
    hit(file, 4, 5)
    file.open_window(calls=2, steps=1)
    lines = read(file)
    assert [numbers(lines, window) for window in lines.windows] == [[3, 4, 9], [4, 5], []]
    assert [(window.number, window.calls, window.steps) for window in lines.windows] == [
        (1, 0, 0),
        (2, 1, 0),
        (3, 2, 1),
    ]
    assert [(line.site.line, line.first, line.last, line.windows) for line in lines.lines] == [
        (3, 1, 1, 1), (4, 1, 2, 2), (9, 1, 1, 1), (5, 2, 2, 1),
    ]  # fmt: skip
    assert {site.line for site in lines.between(1, 2)} == {3, 4, 5, 9} and lines.between(4, 9) == frozenset()
    assert str(lines.lines[0].site) == "train.py:3" and lines.lines[0].site.function == "main"


def test_windows_with_the_same_lines_share_them(file):
    for step in range(50):
        hit(file, 3, 4, *([7] if step == 20 else []))
        file.open_window(step + 1, step + 1)
    lines = read(file)
    assert sorted(map(len, lines.paths)) == [0, 2, 3]
    assert [window.number for window in lines.windows if 7 in numbers(lines, window)] == [21]


def test_the_last_windows_are_kept_and_the_whole_run_in_the_table(file):
    hit(file, 1)
    for window in range(2 * layout.WINDOWS):
        file.open_window(window, window)
        hit(file, 2, 3)
    lines = read(file)
    assert len(lines.windows) == layout.WINDOWS and numbers(lines, lines.windows[0]) == [2, 3]
    assert (lines.lines[0].site.line, lines.lines[0].last) == (1, 1)
    assert lines.lines[1].windows == 2 * layout.WINDOWS
    assert [window.number for window in read(file, last=3).windows] == [2 * layout.WINDOWS + 1 - n for n in (2, 1, 0)]


def test_a_window_of_which_hits_were_overwritten_is_left_out(file):
    for window in range(4):
        hit(file, *range(1, layout.HITS // 3))
        file.open_window(window, window)
    lines = read(file)
    assert [window.number for window in lines.windows] == [2, 3, 4, 5]
    assert len(lines.lines) == layout.HITS // 3 - 1
    hit(file, *range(1, layout.HITS // 3))
    assert [window.number for window in read(file).windows] == [3, 4, 5]


def test_a_hit_that_was_not_written_yet_is_left_out(file):
    hit(file, 3)
    file.open_window(1, 0)
    file.head[layout.HITTED] += 2  # counted before it is there, as another thread may do
    hit(file, 4)
    lines = read(file)
    assert [numbers(lines, window) for window in lines.windows] == [[3], [4]]


def test_each_run_begins_anew(file):
    hit(file, 3)
    file.open_window(1, 0)
    hit(file, 3, 4)
    file.new_run(2)
    assert read(file, 1) is None
    hit(file, 8)
    lines = read(file, 2)
    assert [numbers(lines, window) for window in lines.windows] == [[8]] and len(lines.lines) == 1


def test_what_there_is_no_room_for_is_counted(file, monkeypatch):
    monkeypatch.setattr(layout, "LINES", 2)
    assert [file.add("a.py", "f", line) for line in (1, 2, 3, 3, 1)] == [0, 1, -1, -1, 0]
    assert read(file).dropped == 1
    monkeypatch.undo()
    assert file.add("x" * layout.TEXTS_SIZE, "f", 1) > 0  # shortened
    for number in range(layout.TEXTS_SIZE // layout.LONGEST):
        row = file.add(f"{number}".ljust(layout.LONGEST, "x"), "f", 1)
    assert row == -1 and read(file).dropped > 1


def test_names_may_be_anything(file):
    file.add("spool/\udcff/\u00e4.py", "<lambda>\x1b[31m", 1)
    file.columns[layout.COUNT][0] = 1
    (line,) = read(file).lines
    assert line.site.function.isprintable() and line.site.file == "spool/?/\u00e4.py"


def test_what_is_no_such_file_is_refused():
    for source in (b"", b"x" * layout.FILE_SIZE, layout.MAGIC):
        with pytest.raises(ValueError, match="not a file of executed lines"):
            LineReader(source)


@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_file_gives_less_or_nothing(file, seed):
    for window in range(20):
        hit(file, *range(1, 30))
        file.open_window(window, window)
    damaged, rng = bytearray(data(file)), random.Random(seed)
    places = [(layout.HEAD_AT, 48), (layout.TEXTS_AT, 64), (layout.TABLE_AT, 128), (layout.HITS_AT, 800),
              (layout.WINDOWS_AT, 800), *((layout.column_at(column), 64) for column in layout.COLUMNS)]  # fmt: skip
    for _ in range(6):
        at, size = rng.choice(places)
        damaged[at + rng.randrange(size)] = rng.choice([0, 1, 127, 255])
    lines = LineReader(damaged).read(1)
    for window in lines.windows if lines is not None else ():
        assert lines.of(window) is not None and lines.between(1, 5) is not None
