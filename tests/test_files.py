"""Files are written whole or not at all, and refused before the work where they cannot be."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ddpnb.errors import CannotWrite, UsageError
from ddpnb.files import check_writable, write_whole


@pytest.mark.parametrize("path", ["no/such/folder/v.json", ".", "", "file/v.json", "n" * 300, "a\0b", None, 5])
def test_an_impossible_place_is_refused(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        check_writable(path)
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_without_permission_is_refused(tmp_path):
    tmp_path.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # root may write everywhere
    try:
        with pytest.raises(UsageError, match="cannot write.*Permission denied"):
            check_writable(tmp_path / "v.json")
    finally:
        os.seteuid(user)


def test_a_check_leaves_what_is_there(tmp_path):
    path = tmp_path / "v.json"
    path.write_text("before")
    check_writable(path)
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["v.json"]


def test_a_device_is_written_to_and_not_replaced():
    check_writable("/dev/null")
    write_whole("/dev/null", "text")
    assert not os.path.isfile("/dev/null")
    with pytest.raises(CannotWrite, match="No space left on device"):
        write_whole("/dev/full", "text")


def test_a_full_disk_leaves_what_was_there_and_nothing_half(tmp_path):
    (tmp_path / "v.json").write_text("before")
    code = """
import resource, sys
from ddpnb.errors import CannotWrite
from ddpnb.files import write_whole
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    write_whole(sys.argv[1], "x" * 1000)
except CannotWrite as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "v.json")], capture_output=True, text=True, timeout=60, check=True
    )
    assert "cannot write" in done.stdout
    assert os.listdir(tmp_path) == ["v.json"]
    assert (tmp_path / "v.json").read_text() == "before"
