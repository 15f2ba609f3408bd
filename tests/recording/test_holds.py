from __future__ import annotations

import json

import pytest

from ddpnb.errors import UsageError
from ddpnb.recording.holds import Hold, site_fits


def test_in_words():
    assert str(Hold()) == "before every call"
    assert (
        str(Hold(("send", "recv"), 3, "train.py", "0,2", "x > 1"))
        == "before send or recv #3 at train.py in group 0,2 when x > 1"
    )
    assert Hold().anything and not Hold(seq=1).anything


def test_it_goes_through_json_and_back():
    one = Hold(("barrier",), 3, "train.py:9", "0,2", "x > 1")
    assert Hold.from_json(json.loads(json.dumps(one.to_json()))) == one


@pytest.mark.parametrize(
    "wrong", [{"seq": 0}, {"seq": -1}, {"seq": "3"}, {"when": "x ="}, {"when": "import os"}, {"when": "\0"}]
)
def test_what_is_refused(wrong):
    with pytest.raises(UsageError):
        Hold(**wrong)


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("train.py", True), ("train.py:91", True), ("src/train.py:91", True), ("/a/src/train.py", True), ("main", True),
        ("train.py:92", False), ("rain.py", False), ("main:91", False), ("other", False), ("train.py:main", False),
    ],
)  # fmt: skip
def test_sites(pattern, fits):
    assert site_fits(pattern, "/a/src/train.py", 91, "main") is fits
