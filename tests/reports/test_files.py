from __future__ import annotations

import gzip
import os
import zipfile

import pytest

from ddpnb.errors import UsageError
from ddpnb.reports import files


def names(found):
    return [os.path.basename(file.path) for file in found]


def test_all_files_of_a_folder_in_order(tmp_path):
    for name in ("b/rank1.log", "a/rank0.log", "c.log", ".git/config"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert names(files.find([tmp_path])) == ["c.log", "rank0.log", "rank1.log"]


def test_pipes_in_a_folder_are_left_alone(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert files.find([tmp_path]) == []


def test_a_loop_of_links_ends(tmp_path):
    (tmp_path / "here").symlink_to(tmp_path)
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    assert files.find([tmp_path]) == []


def test_a_path_that_does_not_exist(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        files.find([tmp_path / "none"])
    with pytest.raises(UsageError, match="null"):
        files.find(["a\0b"])


def test_the_ends_of_a_large_file(tmp_path):
    path = tmp_path / "large.log"
    path.write_bytes(b"a" * 100 + b"b" * 1000 + b"c" * 50)
    (file,) = files.find([path])
    assert file.ends(100, 50) == (b"a" * 100, b"c" * 50)
    assert file.ends(2000, 50) == (path.read_bytes(), b"")


def test_a_compressed_file_is_unpacked_within_bounds(tmp_path):
    (tmp_path / "job.log.gz").write_bytes(gzip.compress(b"a" * 100 + b"c" * 50))
    (file,) = files.find([tmp_path])
    assert file.head() == b"a" * 100 + b"c" * 50
    assert file.ends(100, 50) == (b"a" * 100, b"c" * 50)


def test_a_bomb_is_not_unpacked_as_a_whole(tmp_path):
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(64 << 20)))
    (file,) = files.find([tmp_path])
    assert len(file.head()) == files.HEAD
    with pytest.raises(UsageError, match="too large"):
        file.whole(1 << 20)


def test_of_a_truncated_archive_what_could_be_unpacked_is_read(tmp_path):
    packed = gzip.compress(os.urandom(100_000))
    (tmp_path / "cut.gz").write_bytes(packed[: len(packed) // 2])
    (file,) = files.find([tmp_path])
    assert 0 < len(file.ends()[0]) < 100_000


def test_the_members_of_a_zip_archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "logs.zip", "w") as archive:
        archive.writestr("logs/rank0.log", "zero")
        archive.writestr("../rank1.log", "one")
    found = files.find([tmp_path / "logs.zip"])
    assert [file.whole() for file in found] == [b"zero", b"one"]
    assert not (tmp_path.parent / "rank1.log").exists()


def test_a_damaged_zip_archive(tmp_path):
    (tmp_path / "logs.zip").write_bytes(b"PK\x03\x04 and nothing else")
    with pytest.raises(UsageError, match="damaged archive"):
        files.find([tmp_path / "logs.zip"])


def test_a_pipe_that_was_asked_for_is_read_once():
    inlet, outlet = os.pipe()
    os.write(outlet, b"a line\n")
    os.close(outlet)
    try:
        (file,) = files.find([f"/dev/fd/{inlet}"])
        assert file.whole() == file.whole() == b"a line\n"
    finally:
        os.close(inlet)
