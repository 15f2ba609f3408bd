from __future__ import annotations

import bz2
import io
import lzma
import tarfile
import zlib

import pytest

from ddpnb.errors import UsageError
from ddpnb.reports import archives, files
from ddpnb.reports.encodings import Middle, encoding_of
from ddpnb.world.loading import load


def tar(path, members: dict[str, bytes], mode: str = "gz", kind: bytes = tarfile.REGTYPE) -> None:
    with tarfile.open(path, f"w:{mode}") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.type = len(data), kind
            archive.addfile(entry, io.BytesIO(data))


@pytest.mark.parametrize(
    "pack", [bz2.compress, lzma.compress, lambda data: bz2.compress(data[:4]) + bz2.compress(data[4:])]
)
def test_compressed_files(tmp_path, pack):
    (tmp_path / "a.log").write_bytes(pack(b"one\ntwo\n"))
    (file,) = files.find([tmp_path])
    assert (file.whole(), file.head()) == (b"one\ntwo\n",) * 2


@pytest.mark.parametrize("mode", ["", "gz", "bz2", "xz"])
def test_the_files_of_a_tar_archive(tmp_path, mode):
    tar(
        tmp_path / "logs", {"a/rank0.log": b"zero", "/etc/../../x.log": b"one", "b.log.bz2": bz2.compress(b"two")}, mode
    )
    found = files.find([tmp_path / "logs"])
    assert [file.whole() for file in found] == [b"zero", b"one", b"two"]
    assert [one.name for one in tmp_path.iterdir()] == ["logs"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_of_an_archive_only_plain_files_are_read(tmp_path, kind):
    tar(tmp_path / "logs.tar", {"passwd": b""}, kind=kind)
    assert files.find([tmp_path / "logs.tar"]) == []


def test_bombs_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "_MOST_UNPACKED", 4 << 20)
    monkeypatch.setattr(archives, "_MOST_HELD", 1 << 20)
    tar(tmp_path / "many.tar.gz", {f"{n}.log": bytes(300_000) for n in range(8)})
    with pytest.raises(UsageError, match="holds more than 1 MiB"):
        files.find([tmp_path / "many.tar.gz"])
    tar(tmp_path / "name.tar.gz", {"x": bytes(3 << 20)}, kind=tarfile.XHDTYPE)
    with pytest.raises(UsageError, match="too long"):
        files.find([tmp_path / "name.tar.gz"])
    monkeypatch.setattr(archives, "MOST_FILES", 3)
    tar(tmp_path / "files.tar", {f"{n}.log": b"" for n in range(8)}, "")
    with pytest.raises(UsageError, match="more than 3 files"):
        files.find([tmp_path / "files.tar"])


@pytest.mark.parametrize("head", [b"BZh9", b"\xfd7zXZ\x00", b"\x1f\x8b\x08"])
def test_damaged_files_get_one_line(tmp_path, head):
    (tmp_path / "a.log").write_bytes(head + b"nothing of the kind" * 100)
    with pytest.raises(UsageError, match="cannot read|damaged"):
        load(tmp_path / "a.log")


def test_other_archives_are_named(tmp_path):
    (tmp_path / "a.log").write_bytes(b"\x28\xb5\x2f\xfd" + zlib.compress(b"x"))
    with pytest.raises(UsageError, match="nothing") as raised:
        load(tmp_path / "a.log")
    assert "zstd archive" in str(raised.value)
    (tmp_path / "b.log").write_text("[rank1]: ValueError: x")
    assert any("zstd" in note for note in load(tmp_path).report.unknown)


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        ("step 1\n".encode("utf-16"), "utf-16-le"),
        ("step 1\n".encode("utf-16-le"), "utf-16-le"),
        ("step 1\n".encode("utf-16-be"), "utf-16-be"),
        (b"\xef\xbb\xbfstep", "utf-8"),
        (bytes(5000) + b"step 1\n", "utf-8"),
        ("fin de la t\xe2che\n".encode("latin-1"), "utf-8"),
        (b"\x80\x02}q\x00X\x05\x00\x00\x00steps\x01\x02\x03\x04", None),
    ],
)
def test_the_encoding_is_seen_from_the_bytes(data, encoding):
    assert encoding_of(data) == encoding


def test_of_the_middle_the_lines_around_known_words_are_kept():
    middle = Middle(["Error"], "utf-8")
    noise = b"step\n" * 10_000
    for piece in (noise, b"a\nValueErr", b"or: x\nb\n", noise):
        middle.add(piece)
    assert b"ValueError: x\nb\n" in middle.text
    assert len(middle.text) < len(noise) and not middle.left_out
    middle.add(b"")
    assert middle.left_out
