"""Files are written whole or not at all, and refused before the work where they cannot be."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import tempfile
import threading

import pytest

from ddpnb.errors import CannotWrite, UsageError
from ddpnb.recording import files
from ddpnb.recording.files import check_folder, check_writable, remove_earlier, write_whole

IMPOSSIBLE = [
    "no/such/folder/v.json", ".", "", "file/v.json", "file/", "folder/", "n" * 300, "a\0b", "circle", "/proc/v.json",
    None, 5,
]  # fmt: skip


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The working directory: a file, a folder, and a link to itself."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle").symlink_to("circle")
    return tmp_path


@contextlib.contextmanager
def not_root():
    """Root may write everywhere."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("path", IMPOSSIBLE)
def test_an_impossible_place_is_refused(path, place):
    with pytest.raises(UsageError, match="cannot write"):
        check_writable(path)
    assert sorted(os.listdir(place)) == ["circle", "file", "folder"]


@pytest.mark.parametrize("path", ["", "file", "file/logs", "n" * 300, "a\0b", "circle", "circle/logs", "/proc/logs/x", None, 5])  # fmt: skip
def test_an_impossible_folder_is_refused(path, place):
    with pytest.raises(UsageError, match="cannot write"):
        check_folder(path)
    assert sorted(os.listdir(place)) == ["circle", "file", "folder"]


@pytest.mark.parametrize("path", ["folder", "folder/", ".", "new", "new/of/three"])
def test_a_folder_that_can_be_made_is_not_refused(path, place):
    check_folder(path)
    assert sorted(os.listdir(place)) == ["circle", "file", "folder"] and os.listdir("folder") == []


@pytest.mark.parametrize(("check", "path"), [(check_writable, "v.json"), (check_folder, "."), (check_folder, "a/b")])
def test_a_folder_without_permission_is_refused(tmp_path, check, path):
    tmp_path.chmod(0o555)
    with not_root(), pytest.raises(UsageError, match="cannot write.*Permission denied"):
        check(tmp_path / path)


def test_a_check_leaves_what_is_there(tmp_path):
    path = tmp_path / "v.json"
    path.write_text("before")
    check_writable(path)
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["v.json"]


@pytest.mark.parametrize("write", [check_writable, lambda path: write_whole(path, "text")], ids=["check", "write"])
def test_files_of_others_beside_it_stay(tmp_path, write):
    """Of an editor, of another command with the same file, or planted to lead elsewhere."""
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "v.json.part").symlink_to("theirs")
    write(tmp_path / "v.json")
    assert {"theirs", "v.json.part"} <= set(os.listdir(tmp_path)) <= {"theirs", "v.json.part", "v.json"}
    assert (tmp_path / "theirs").read_text() == "theirs"


def test_two_commands_with_one_file(tmp_path, monkeypatch):
    """The other one comes between the check and the write, and between the write and the rename."""
    path = tmp_path / "v.json"
    replace = os.replace

    def later(source, target):
        monkeypatch.setattr(os, "replace", replace)
        check_writable(path)
        write_whole(path, "second")
        replace(source, target)

    monkeypatch.setattr(os, "replace", later)
    write_whole(path, "first")
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["v.json"]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_its_user_alone_can_read_it_whatever_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_whole(tmp_path / "v.json", "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "v.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_leads_to_what_was_written(tmp_path, there):
    (tmp_path / "results").mkdir()
    if there:
        (tmp_path / "results" / "v.json").write_text("before")
    (tmp_path / "one").symlink_to("results/v.json")
    (tmp_path / "link").symlink_to("one")
    check_writable(tmp_path / "link")
    write_whole(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "results" / "v.json").read_text() == "text"
    assert os.listdir(tmp_path / "results") == ["v.json"]
    remove_earlier(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and os.listdir(tmp_path / "results") == []


def test_a_device_is_written_to_and_not_replaced():
    check_writable("/dev/null")
    write_whole("/dev/null", "text")
    assert not os.path.isfile("/dev/null")
    with pytest.raises(CannotWrite, match="No space left on device"):
        write_whole("/dev/full", "text")


OPEN_FILE = """
import os, sys
from ddpnb.errors import UsageError
from ddpnb.recording.files import check_writable, remove_earlier, write_whole
path = sys.argv[1]
print("before")
check_writable(path)
remove_earlier(path)
write_whole(path, "text\\n")
os.write(1, b"after\\n")
try:
    check_writable("/dev/stdin")
except UsageError as error:
    print(error)
"""


@pytest.mark.parametrize("path", ["/dev/fd/1", "/proc/self/fd/1", "link"])
def test_an_open_file_is_written_to_in_order_and_not_replaced(path, tmp_path):
    """Through a link like /dev/stdout, which is not put at risk here: root could lose it."""
    (tmp_path / "link").symlink_to("/proc/self/fd/1")
    with open(tmp_path / "log", "w") as log, open(tmp_path / "log") as source:
        subprocess.run(
            [sys.executable, "-c", OPEN_FILE, path], cwd=tmp_path, stdin=source, stdout=log, timeout=240, check=True
        )
    first, text, after, refused, *_ = (tmp_path / "log").read_text().splitlines()
    assert (first, text, after) == ("before", "text", "after")
    assert "cannot write to '/dev/stdin': it is open for reading only" in refused
    assert (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link", "log"]


def test_the_links_of_dev_are_open_files():
    """``--json /dev/stdout > log``: no file is put in the place of /dev/stdout."""
    places = [files._find(f"/dev/{name}") for name in ("stdin", "stdout", "stderr")]
    assert [(place.special, place.descriptor) for place in places] == [(True, 0), (True, 1), (True, 2)]


def test_a_pipe_whose_reader_waits_is_not_ended_by_the_check(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    # The reader has opened its end as soon as somebody can open the other one without waiting.
    for _ in range(3):
        check_writable(pipe)
    remove_earlier(pipe)
    text = "x" * 1_000_000
    while True:
        try:
            write_whole(pipe, text)
            break
        except CannotWrite:
            assert reader.is_alive(), "the check was its end of file"
    reader.join(30)
    assert read == [text]
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)


def test_a_pipe_that_nobody_reads_is_an_error_and_no_wait(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_writable(pipe)  # its reader may come
    with pytest.raises(CannotWrite, match="no process reads from this pipe"):
        write_whole(pipe, "text")


def test_a_pipe_without_permission_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        os.mkfifo(f"{folder}/pipe", 0o444)
        with not_root(), pytest.raises(UsageError, match="Permission denied"):
            check_writable(f"{folder}/pipe")


def test_a_full_disk_leaves_what_was_there_and_nothing_half(tmp_path):
    (tmp_path / "v.json").write_text("before")
    code = """
import resource, sys
from ddpnb.errors import CannotWrite
from ddpnb.recording.files import write_whole
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    write_whole(sys.argv[1], "x" * 1000)
except CannotWrite as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "v.json")], capture_output=True, text=True, timeout=240, check=True
    )
    assert "cannot write" in done.stdout
    assert os.listdir(tmp_path) == ["v.json"]
    assert (tmp_path / "v.json").read_text() == "before"
