"""Values that ranks compare: which are equal, what they are called, and who differs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from ddpnb.errors import UsageError
from ddpnb.recorder.collectives import same
from ddpnb.recorder.collectives.sameness import Sameness
from ddpnb.recorder.files.boards import Places
from ddpnb.recorder.holds.agreement import announced, differing, read, sentence

EQUAL = [
    (1, 1),
    (float("nan"), float("nan")),
    ("a", "a"),
    (torch.arange(4.0), torch.arange(8.0)[:4]),
    ({1, 2, 300}, {300, 2, 1}),
    ([1, {"a": (2.0, None)}], [1, {"a": (2.0, None)}]),
]
DIFFERENT = [
    (1, 1.0),
    (1, True),
    (0.1, 0.1 + 2**-55),
    ("1", 1),
    (torch.zeros(3), torch.zeros(3, dtype=torch.int32)),
    (torch.zeros(3), torch.zeros(1, 3)),
    ([1, 2], (1, 2)),
    (["ab", "c"], ["a", "bc"]),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_values(one, other):
    assert announced(one) == announced(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_values(one, other):
    assert announced(one) != announced(other)


@pytest.mark.parametrize("value", [object(), [object()], len, torch.nn.Linear(1, 1)])
def test_what_cannot_be_compared_is_refused(value):
    with pytest.raises(UsageError, match="cannot be compared between ranks"):
        announced(value)


def test_texts_are_bounded_and_of_one_line():
    name, text = read(announced("line\nline" * 1000, "a\nname" * 100))
    assert len(name) <= 90 and len(text) <= 90 and "\n" not in name + text
    assert read(b"\xff" * 40)  # what a rank has written may be anything


def test_the_later_rank_sees_who_differs(tmp_path):
    ranks = (0, 2, 5)
    places = [Places(str(tmp_path / "values"), 3, me) for me in range(3)]
    assert differing(places[0], 1, announced(0.25), ranks) == {}
    assert differing(places[1], 1, announced(0.25), ranks) == {}
    mine = announced(0.5)
    others = differing(places[2], 1, mine, ranks)
    assert sentence("loss", mine, others) == "loss is 0.5 here, 0.25 on ranks 0 and 2"
    assert differing(places[0], 2, announced(1), ranks) == {}, "another number"


class Ranks:
    """Two ranks in this process, which note values."""

    def __init__(self, tmp_path):
        self.settled, self.fence = 0, "raise"
        self.group = SimpleNamespace(key="0", ranks=(0, 1))
        self.ranks = [self.rank(str(tmp_path / "values"), me) for me in range(2)]

    def rank(self, path, me):
        shared = Places(path, 2, me), (0, 1)
        gate = SimpleNamespace(settle=lambda: None, shared=lambda *_: shared)
        return Sameness(gate, [], lambda: self.fence)

    def note(self, me, **values):
        self.ranks[me].open()
        for name, value in values.items():
            same.same(value, name)

    def differences(self, me, seq, *, whole=True):
        return self.ranks[me].differences(self.group, seq, "all_reduce", whole)


@pytest.fixture
def two(tmp_path):
    yield Ranks(tmp_path)
    same.noted.clear()


def test_one_that_announces_the_same_value_meanwhile_does_not_differ(tmp_path, monkeypatch):
    """Between the look at the digests and the one at what they are digests of."""
    one, other = (Places(str(tmp_path / "values"), 2, me) for me in range(2))
    other.announce(1, announced(10))
    look = Places.of

    def late(places, seq, member):
        monkeypatch.setattr(Places, "of", look)
        other.announce(2, announced(20))
        return look(places, seq, member)

    monkeypatch.setattr(Places, "of", late)
    assert differing(one, 2, announced(20), (0, 1)) == {}
    assert Places.of is look


def test_same_does_nothing_without_a_recorder():
    same.noted.clear()
    assert same.same(object(), "anything") is None


def test_same_names_value_rank_and_line(two):
    two.note(0, loss=0.25, batches=31)
    two.note(1, loss=0.25, batches=32)
    assert two.differences(0, 1) == ""
    assert two.differences(1, 1).startswith("batches is 32 here, 31 on rank 0 (ddpnb.same at test_agreement.py:")
    assert not two.ranks[1].pending and two.differences(1, 2) == ""


def test_what_only_one_rank_notes_is_not_compared(two):
    two.note(0, loss=1)
    two.note(1, accuracy=2)
    assert two.differences(0, 1) == two.differences(1, 1) == ""


def test_a_part_of_the_ranks_compares_once_and_keeps_it_for_the_whole(two):
    two.note(0, loss=1)
    two.note(1, loss=2)
    assert two.differences(0, 1, whole=False) == "" and two.ranks[0].pending
    assert "loss is 2 here, 1 on rank 0" in two.differences(1, 1, whole=False)
    assert two.differences(1, 2, whole=False) == "", "said once in this group"


def test_very_many_values(two):
    two.note(0, **{f"value_{n}" * 5: n for n in range(40)})
    two.note(1, **{f"value_{n}" * 5: n + (n == 39) for n in range(40)})
    assert two.differences(0, 1) == ""
    assert two.differences(1, 1) == "one of 40 values before all_reduce differs on rank 0"


def test_no_fence_no_comparison(two):
    two.fence = "off"
    two.note(0, loss=object())
    assert not two.ranks[0].pending
