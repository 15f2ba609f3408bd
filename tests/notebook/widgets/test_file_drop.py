"""Files that the page sends in parts: they arrive whole, and nothing that the page says leads out of their folder."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from ddpnb.notebook.widgets import file_drop
from ddpnb.notebook.widgets.file_drop import FileDrop, plain


class Page:
    """The page's side: it sends messages, and hears answers."""

    def __init__(self):
        self.received: list[tuple[Path, list[str]]] = []
        self.paths: list[str] = []
        self.drop = FileDrop(lambda folder, names: self.received.append((Path(folder), names)), self.paths.append)
        self.answers: list[str] = []
        self.drop.send = lambda content, buffers=None: self.answers.append(content["kind"])

    def tell(self, kind, *, number=1, part=None, **content):
        self.drop._handle_custom_msg(
            {"kind": kind, "id": number, **content}, [] if part is None else [memoryview(part)]
        )

    def begin(self, *files, number=1):
        self.tell("begin", number=number, files=[{"path": path, "size": size} for path, size in files])


@pytest.fixture
def page():
    return Page()


def test_files_arrive_whole_with_their_folders(page):
    page.begin(("dumps/rank0.pkl", 5), ("empty.log", 0))
    page.tell("part", file=0, offset=0, part=b"abc")
    page.tell("part", file=0, offset=3, part=b"de")
    page.tell("end")
    ((folder, names),) = page.received
    assert names == ["dumps/rank0.pkl", "empty.log"]
    assert (folder / names[0]).read_bytes() == b"abcde" and (folder / names[1]).read_bytes() == b""
    assert page.answers == ["next"] * 4


def test_files_are_removed_with_the_widget(page):
    page.begin(("a.log", 0))
    page.tell("end")
    folder = page.received[0][0]
    assert folder.exists()
    page.drop.close()
    page.drop = None
    gc.collect()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("../../etc/passwd", "etc/passwd"),
        ("/etc/passwd", "etc/passwd"),
        ("C:\\logs\\rank0.log", "C_/logs/rank0.log"),
        ("a\x00\x1b[31m\n.log", "a__[31m_.log"),
        ("<b>.log", "_b_.log"),
        ("..", "file"),
        ("", "file"),
        ("a/" * 50 + "b", "a/" * 7 + "b"),
        ("x" * 999, "x" * 120),
    ],
)
def test_names_become_plain_relative_paths(given, kept):
    assert plain(given) == kept


def test_two_files_of_one_name_are_two(page):
    page.begin(("a\t.log", 0), ("a\n.log", 0))
    page.tell("end")
    assert page.received[0][1] == ["a_.log", "1-a_.log"]


@pytest.mark.parametrize(
    "part",
    [
        {"file": 0, "offset": 1, "part": b"x"},
        {"file": 0, "offset": 0, "part": b"xxxx"},
        {"file": 7, "offset": 0, "part": b"x"},
        {"file": 0, "offset": 0},
        {"offset": 0, "part": b"x"},
        {"file": "x", "offset": 0, "part": b"x"},
    ],
)
def test_what_was_not_announced_is_refused(page, part):
    page.begin(("a.log", 3))
    page.tell("part", **part)
    assert page.answers == ["next", "refused"]
    assert "not received" in page.drop.said
    page.tell("end")
    assert not page.received


def test_files_that_are_not_complete_are_refused(page):
    page.begin(("a.log", 3))
    page.tell("end")
    assert page.answers[-1] == "refused" and not page.received


def test_other_files_that_begin_meanwhile_end_those_before(page):
    page.begin(("a.log", 3))
    page.begin(("b.log", 1), number=2)
    page.tell("part", file=0, offset=0, part=b"x")
    assert page.answers[-1] == "refused"


def test_too_many_or_too_large_files_are_refused_before_they_are_sent(page, monkeypatch):
    monkeypatch.setattr(file_drop, "MOST_FILES", 2)
    page.begin(*[("a.log", 1)] * 3)
    assert "3 files are too many" in page.drop.said
    page.begin(("a.log", (1 << 30) + 1))
    assert "larger than 1024 MiB" in page.drop.said
    page.begin(("a.log", -1))
    assert page.answers == ["refused"] * 3
    page.begin(("a.log", 1))
    assert page.drop.said == ""


def test_a_path_that_is_typed(page):
    for path in ("  logs/ ", "", " "):
        page.drop._handle_custom_msg({"action": "read", "values": {"path": path}}, [])
    assert page.paths == ["logs/"]
