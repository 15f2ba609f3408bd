"""Files that were dropped or named are read, together with those before; what cannot be read is said."""

from __future__ import annotations

import threading

import pytest

from ddpnb.errors import UsageError
from ddpnb.notebook import given_files
from ddpnb.notebook.given_files import GivenFiles
from tests.notebook.waiting import until_done
from tests.reports.reading import OLD_WATCHDOG


@pytest.fixture
def given():
    files = GivenFiles()
    files.loaded = []
    files.use("here", files.loaded.append)
    return files


def until_read(files):
    until_done(files._tasks)


def dropped(files, folder, *names):
    files._received(str(folder), list(names))
    until_read(files)


def test_a_dropped_log_has_its_own_name(given, tmp_path):
    (tmp_path / "job.log").write_text(OLD_WATCHDOG)
    dropped(given, tmp_path, "job.log")
    (recording,) = given.loaded
    assert {source.path for source in recording.report.sources} == {"job.log"}
    assert given.drop.hint == "here" and given.drop.said == ""


def test_further_files_are_read_with_those_before(given, tmp_path):
    (tmp_path / "a").mkdir()
    lines = OLD_WATCHDOG.splitlines(keepends=True)
    (tmp_path / "a" / "one.log").write_text("".join(lines[:2]))
    (tmp_path / "two.log").write_text("".join(lines[2:]))
    dropped(given, tmp_path, "a/one.log")
    given.drop._on_path(str(tmp_path / "two.log"))
    until_read(given)
    seen = [[rank for rank, record in one.ranks.items() if record.mentioned] for one in given.loaded]
    assert seen == [[3], [0, 2, 3]]


def test_what_cannot_be_read_is_said_and_left_out(given, tmp_path):
    (tmp_path / "noise.bin").write_bytes(bytes(range(256)))
    (tmp_path / "job.log").write_text(OLD_WATCHDOG)
    dropped(given, tmp_path, "noise.bin")
    assert "noise.bin" in given.drop.said and str(tmp_path) not in given.drop.said
    given.drop._on_path(str(tmp_path / "none"))
    until_read(given)
    assert "No such file" in given.drop.said
    assert given.loaded == []
    dropped(given, tmp_path, "job.log")
    assert len(given.loaded) == 1 and given.drop.said == ""


def test_nothing_is_in_progress_once_the_answer_is_there(given, tmp_path, monkeypatch):
    told = threading.Event()

    def read(paths, progress):
        threading.Thread(target=lambda: (until_done(given._tasks), progress(1, 2), told.set())).start()
        raise UsageError("nothing in it is known.")

    monkeypatch.setattr(given_files, "read", read)
    dropped(given, tmp_path, "job.log")
    assert told.wait(30)
    assert (given.drop.busy, given.drop.said) == ("", "nothing in it is known.")
