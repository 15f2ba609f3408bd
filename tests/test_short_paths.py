from __future__ import annotations

import pytest

from ddpnb import texts as text
from tests.render.test_card import HOSTILE


def test_a_path_is_a_whole_path_in_the_root_directory(monkeypatch):
    monkeypatch.chdir("/")
    assert text.relative("/home/user/train.py") == "/home/user/train.py"


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("{here}/hang.py", "hang.py"),
        ("{here}/b{here}/x/hang.py", "b{here}/x/hang.py"),
        ("{here}{here}/hang.py", "{rest}/hang.py"),
        ("/mnt{here}/hang.py", "/mnt{here}/hang.py"),
        ("/data+{here}/hang.py", "/data+{here}/hang.py"),
        ("{here}x/hang.py", "{here}x/hang.py"),
        ('  File "{here}/hang.py", line 3', '  File "hang.py", line 3'),
        ("rank 0: {here}/hang.py:3, rank 1: {here}/b{here}/x.py:4", "rank 0: hang.py:3, rank 1: b{here}/x.py:4"),
        ("at {here}/one.py:3\n{here}/two.py", "at one.py:3\ntwo.py"),
    ],
)
def test_the_working_directory_is_left_out_only_at_the_beginning_of_a_path(tmp_path, monkeypatch, path, shown):
    here = tmp_path / "a"
    here.mkdir()
    monkeypatch.chdir(here)
    places = {"here": str(here), "rest": str(here)[1:]}
    assert text.relative(path.format(**places)) == shown.format(**places)
    assert text.relative(text.relative(path.format(**places))) == shown.format(**places)


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
def test_printable_keeps_what_can_be_read(hostile):
    assert text.printable(f"before {hostile} after\tüñ→").startswith("before ")
    assert text.printable(f"before {hostile} after\tüñ→").endswith(" after\tüñ→")


def test_one_line_is_one():
    assert text.one_line("bad\n\nRank 3\tis\x1b[2J") == "bad  Rank 3 is�[2J"
