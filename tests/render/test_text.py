from __future__ import annotations

import pytest

from ddpnb.render import text
from tests.render.test_card import HOSTILE


def test_a_path_is_a_whole_path_in_the_root_directory(monkeypatch):
    monkeypatch.chdir("/")
    assert text.relative("/home/user/train.py") == "/home/user/train.py"


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
def test_printable_keeps_what_can_be_read(hostile):
    assert text.printable(f"before {hostile} after\tüñ→").startswith("before ")
    assert text.printable(f"before {hostile} after\tüñ→").endswith(" after\tüñ→")


def test_one_line_is_one():
    assert text.one_line("bad\n\nRank 3\tis\x1b[2J") == "bad  Rank 3 is�[2J"
