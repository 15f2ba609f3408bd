"""Bytes that others write, in files and in buffers."""

from __future__ import annotations

import os

import pytest

from ddpnb.recording.shared import BufferBytes, FileBytes, readable, shared_file


@pytest.fixture
def path(tmp_path):
    (tmp_path / "file").write_bytes(b"0123456789")
    return str(tmp_path / "file")


def test_files_and_buffers_give_the_same(path):
    for source in (FileBytes(path), BufferBytes(b"0123456789")):
        assert len(source) == 10
        assert [source.read(at, 4) for at in (0, 5, 8, 20)] == [b"0123", b"5678", b"89\0\0", bytes(4)]


def test_what_is_open_already_is_taken_as_it_is(path):
    source = FileBytes(path)
    assert readable(source) is source
    assert readable(bytearray(b"01")).read(1, 1) == b"1"


def test_a_file_that_shrinks_gives_zeros(path):
    source = FileBytes(path)
    os.truncate(path, 3)
    assert source.read(0, 6) == b"012\0\0\0"


def test_only_regular_files_are_read(tmp_path, path):
    """A pipe would never end, and a link leads anywhere."""
    os.mkfifo(tmp_path / "pipe")
    os.symlink(path, tmp_path / "link")
    for name in ("pipe", "link", ".", "missing"):
        with pytest.raises((OSError, ValueError)):
            FileBytes(str(tmp_path / name))


def test_those_who_read_one_file_share_a_descriptor(path, tmp_path):
    """With one for each, whoever kept a hundred runs of eight ranks had no descriptors left."""
    before = len(os.listdir("/proc/self/fd"))
    files = [shared_file(path) for _ in range(10)]
    assert len(os.listdir("/proc/self/fd")) == before + 1
    (tmp_path / "other").write_bytes(b"other")
    os.replace(tmp_path / "other", path)
    assert shared_file(path).read(0, 5) == b"other"
    assert files[0].read(0, 5) == b"01234"
    files.clear()
    assert len(os.listdir("/proc/self/fd")) == before


def test_it_is_closed_when_it_is_dropped(path):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        FileBytes(path).read(0, 1)
    source = FileBytes(path)
    source.close()
    source.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_is_being_closed_is_not_given_to_another_reader(path, monkeypatch):
    """Closing lets other threads run: one of them may open the same file at that moment."""
    close, others = os.close, []

    def closing(fd):
        if not others:
            others.append(shared_file(path))
        close(fd)

    monkeypatch.setattr(os, "close", closing)
    file = shared_file(path)
    del file
    assert others[0].read(0, 5) == b"01234"
