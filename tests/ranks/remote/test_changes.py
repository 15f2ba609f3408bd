"""What is sent of the files of ranks, and what the mirror makes of it: a host and a launcher in two folders."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from ddpnb.ranks.remote.changes import PAGE, OtherFiles, PagedFile, packed, unpacked
from ddpnb.ranks.remote.mirror import Mirror
from ddpnb.recorder.files import shared_files
from ddpnb.recording import blackbox, path_file, samples

SIZES = {"box": blackbox.BOX_SIZE, "samples": samples.FILE_SIZE, "path": path_file.FILE_SIZE}


class Link:
    """Carries looks from the one folder to the other; ``lose``: the next one does not arrive."""

    def __init__(self, host, here):
        self.host, self.here = str(host), str(here)
        self.paged = {}
        self.others = OtherFiles(self.host)
        self.mirror = Mirror(self.here)
        self.mirror.starts[0] = self.start = 1
        self.arrived = True

    def make(self, kind):
        path = os.path.join(self.host, f"rank0.{kind}")
        os.close(shared_files.create(path, SIZES[kind]))
        self.paged[f"rank0.{kind}"] = PagedFile(path)
        return path

    def look(self, *, lose=False):
        changes = {name: file.changes(arrived=self.arrived) for name, file in self.paged.items()}
        files = {
            "paged": [[name, change] for name, change in changes.items() if change is not None],
            "others": self.others.changes(arrived=self.arrived),
        }
        self.arrived = not lose
        if not lose:
            self.mirror.take({"starts": {"0": self.start}, "folders": {self.here: files}})
        return files

    def pages(self, look):
        return sorted(page for _, change in look["paged"] for page, _ in change["pages"])

    def same(self, name):
        return Path(self.host, name).read_bytes() == Path(self.here, name).read_bytes()


@pytest.fixture
def link(tmp_path):
    for name in ("host", "here"):
        (tmp_path / name).mkdir()
    return Link(tmp_path / "host", tmp_path / "here")


def write(path, at, data):
    fd = os.open(path, os.O_WRONLY)
    os.pwrite(fd, data, at)
    os.close(fd)


def test_only_pages_that_changed_are_sent(link):
    path = link.make("box")
    write(path, 3 * PAGE + 7, b"record")
    write(path, 0, b"counter")
    assert link.pages(link.look()) == [0, 3]
    assert link.same("rank0.box")
    assert link.pages(link.look()) == []
    write(path, 9 * PAGE, b"next")
    write(path, 0, b"Counter")
    assert link.pages(link.look()) == [0, 9]
    assert link.same("rank0.box")


def test_a_change_without_a_counter_is_sent_a_few_looks_later(link):
    path = link.make("path")
    link.look()
    write(path, SIZES["path"] - 5, b"line")
    assert any(link.pages(link.look()) for _ in range(8))
    assert link.same("rank0.path")


def test_what_was_lost_is_sent_again_with_what_came_since(link):
    path = link.make("box")
    write(path, 2 * PAGE, b"one")
    write(path, 0, b"1")
    assert link.pages(link.look(lose=True)) == [0, 2]
    write(path, 4 * PAGE, b"two")
    write(path, 0, b"2")
    assert link.pages(link.look(lose=True)) == [0, 2, 4]
    assert link.pages(link.look()) == [0, 2, 4]
    assert link.same("rank0.box") and link.pages(link.look()) == []


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_written_and_lost_the_files_are_the_same_in_the_end(link, seed):
    dice = random.Random(seed)
    path = link.make("samples")
    log = os.path.join(link.host, "run1")
    os.mkdir(log)
    for turn in range(40):
        for _ in range(dice.randrange(6)):
            write(path, dice.randrange(PAGE, SIZES["samples"] - 100), dice.randbytes(dice.randrange(1, 100)))
            write(path, 0, turn.to_bytes(8, "little"))
        with open(os.path.join(log, "rank0.log"), "ab") as file:
            file.write(dice.randbytes(dice.randrange(1000)))
        if dice.random() < 0.3:
            with open(os.path.join(link.host, "run1-rank0.json"), "wb") as file:
                file.write(dice.randbytes(dice.randrange(200)))
        link.look(lose=dice.random() < 0.4)
    for _ in range(9):
        link.look()
    assert all(map(link.same, ("rank0.samples", "run1/rank0.log")))
    assert not os.path.exists(os.path.join(link.host, "run1-rank0.json")) or link.same("run1-rank0.json")


def test_the_counters_are_written_last(link, monkeypatch):
    path = link.make("box")
    write(path, 5 * PAGE, b"record")
    write(path, 0, b"counter")
    order, real = [], os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: order.append(at) or real(fd, data, at))
    link.look()
    assert order == [5 * PAGE, 0]


def test_a_log_is_sent_as_it_grows(link):
    log = os.path.join(link.host, "rank0.log")
    open(log, "w").close()
    assert link.look()["others"] == [["rank0.log", -1, packed(b"")]]
    with open(log, "w") as file:
        file.write("first\n")
    assert link.look()["others"] == [["rank0.log", 0, packed(b"first\n")]]
    with open(log, "a") as file:
        file.write("second\n")
    assert link.look()["others"] == [["rank0.log", 6, packed(b"second\n")]]
    assert link.same("rank0.log") and link.look()["others"] == []


def test_what_is_of_this_host_alone_stays_there(link):
    for name in ("fence-1-abc", "cell3.py", "rank0.sock", "rank0.json.part", ".ddpnb-world"):
        open(os.path.join(link.host, name), "w").close()
    assert link.look()["others"] == []


def test_files_of_an_earlier_process_are_not_taken(link):
    path = link.make("box")
    write(path, 0, b"earlier")
    link.mirror.starts[0] = 2
    os.close(shared_files.create(os.path.join(link.here, "rank0.box"), SIZES["box"]))
    link.look()
    assert Path(link.here, "rank0.box").read_bytes()[:7] == bytes(7)
    os.close(shared_files.create(path, SIZES["box"]))
    link.paged["rank0.box"].renew()
    link.start = 2
    write(path, 0, b"later")
    link.look()
    assert link.same("rank0.box")


@pytest.mark.parametrize(
    "change",
    [
        ["rank0.box", {"size": 10, "pages": []}],
        ["../rank0.box", {"size": SIZES["box"], "pages": []}],
        ["rank0.box", {"size": SIZES["box"], "pages": [[-1, packed(b"x")]]}],
        ["rank0.box", {"size": SIZES["box"], "pages": [[SIZES["box"], packed(b"x")]]}],
        ["rank0.box", {"size": SIZES["box"], "pages": [[1, packed(bytes(PAGE + 1))]]}],
        ["rank0.box", {"size": SIZES["box"], "pages": [[1, "!"]]}],
    ],
)
def test_a_page_that_cannot_be_is_refused(link, change):
    with pytest.raises(ValueError):
        link.mirror.take({"starts": {"0": 1}, "folders": {link.here: {"paged": [change], "others": []}}})


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b", "."])
def test_a_file_that_is_not_below_its_folder_is_refused(link, name, tmp_path):
    look = {"starts": {}, "folders": {link.here: {"paged": [], "others": [[name, -1, packed(b"x")]]}}}
    with pytest.raises(ValueError, match="not below"):
        link.mirror.take(look)
    assert sorted(os.listdir(tmp_path)) == ["here", "host"]


def test_a_folder_of_nobody_is_refused(link, tmp_path):
    look = {"starts": {}, "folders": {str(tmp_path): {"paged": [], "others": [["a", -1, packed(b"x")]]}}}
    with pytest.raises(ValueError, match="no folder of this world"):
        link.mirror.take(look)


def test_what_unpacks_to_more_than_is_ever_sent_is_refused():
    assert unpacked(packed(b"abc" * 1000)) == b"abc" * 1000
    with pytest.raises(ValueError, match="too large"):
        unpacked(packed(bytes(64 << 20)))


def test_of_a_folder_of_the_user_only_logs_of_ranks_are_sent(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("rank0.log", "rank1.displays", "train.csv", "rank0.log.1", "data/rank0.csv"):
        (tmp_path / name).write_text("x")
    sent = OtherFiles(str(tmp_path), logs=True).changes(arrived=True)
    assert sorted(name for name, _, _ in sent) == ["rank0.log", "rank1.displays"]
