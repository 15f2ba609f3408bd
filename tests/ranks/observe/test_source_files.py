"""The text of the files that ranks executed lines of."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from ddpnb.ranks.observe import source_files
from ddpnb.ranks.observe.source_files import SourceFiles
from ddpnb.recording.calls import Call, CallState, Site
from ddpnb.recording.marks import Mark
from ddpnb.recording.path import Code, Path
from ddpnb.recording.recording import RankRecord
from tests.rules.recordings import Rank


@pytest.fixture
def write(tmp_path):
    def written(name: str, text: str = "x = 1\n", age_s: float = 3600.0) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (time.time() - age_s, time.time() - age_s))
        return str(path)

    return written


def ran(*files: str, call: str = "", began_s: float = 60.0) -> dict[int, RankRecord]:
    """One rank that executed a line of each of these files, in a run that began some time ago."""
    began = time.monotonic_ns() - int(began_s * 1e9)
    path = Path(codes=tuple(Code(file, "main", 1) for file in files))
    rank = Rank(0, 1)
    if call:
        rank.calls("all_reduce", Site(call, 1, "main"))
    return {
        0: RankRecord(
            0, path=path, marks=(Mark(0, "begin", began),), calls=tuple(_at(one, began) for one in rank.record.calls)
        )
    }


def _at(call: Call, began: int) -> Call:
    return replace(call, entered_ns=began, state=CallState.COMPLETED)


def test_files_that_were_only_executed_are_read(write):
    helper = write("helper.py", "y = 2\n")
    assert SourceFiles().of(ran(helper)) == {helper: "y = 2\n"}


def test_a_file_is_read_once(write):
    helper, files = write("helper.py", "y = 2\n"), SourceFiles()
    files.of(ran(helper))
    write("helper.py", "other", age_s=0)
    assert files.of(ran(helper)) == {helper: "y = 2\n"} and not files.edited


def test_a_file_that_was_written_after_the_run_began(write):
    old, new, files = write("old.py"), write("new.py", age_s=5), SourceFiles()
    files.of(ran(old, new))
    assert files.edited == [new]


@pytest.mark.parametrize("jump_s", [-7200, 7200])
def test_the_clock_is_set_while_the_ranks_run(write, monkeypatch, jump_s):
    old, new, files = write("old.py"), write("new.py", age_s=5), SourceFiles()
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() + jump_s)
    files.of(ran(old, new))
    assert files.edited == [new]


def test_the_nearest_to_the_calls_first_and_not_too_many(write, monkeypatch):
    monkeypatch.setattr(source_files, "_EXECUTED", 2)
    script, near, beside, far = (write(name) for name in ("a/b/train.py", "a/b/z.py", "a/b/c/y.py", "w/v/u/x.py"))
    assert set(SourceFiles().of(ran(far, beside, near, call=script))) == {script, near, beside}


def test_not_too_much_in_all(write, monkeypatch):
    monkeypatch.setattr(source_files, "_EXECUTED_LIMIT", 100)
    files = [write(f"m{number}.py", "#" * 80) for number in range(5)]
    assert len(SourceFiles().of(ran(*files))) == 2


def test_what_cannot_be_read_is_empty(tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    paths = str(tmp_path / "pipe.py"), str(tmp_path / "none.py"), "nul\0.py"
    assert SourceFiles().of(ran(*paths)) == dict.fromkeys(paths, "")


def test_files_of_a_path_are_read_too(write):
    mine, library = write("mine.py", "a = 1\n"), write("library.py")
    codes = (Code(mine, "f", 1), Code(library, "g", 1, user=False), Code("<string>", "h", 1))
    found = SourceFiles().of({0: RankRecord(0, path=Path(codes=codes))})
    assert found == {mine: "a = 1\n"}
