"""The time account as data: sums, shares and what is written of it."""

from __future__ import annotations

import json

import pytest

from ddpnb.recording.account import PARTS, Account, Parts, RankAccount, Straggler
from ddpnb.recording.calls import Site

FIRST = RankAccount(
    0, 12.0, Parts(4.0, 3.0, 2.0, 1.0), other_s=2.0, steps=10, step=Parts(0.4, 0.3, 0.2, 0.1), steps_per_s=1.25,
    utilisation=0.5, waited_for=((2, 2.5), (1, 0.5)),
)  # fmt: skip
SECOND = RankAccount(1, 12.0, Parts(8.0, 0.0, 2.0, 0.0), other_s=2.0, steps=10, steps_per_s=1.0)


def test_parts_and_their_shares():
    parts = FIRST.parts
    assert parts.total == 10
    assert [parts.share(part) for part in PARTS] == [0.4, 0.3, 0.2, 0.1, 0.0]
    assert Parts().share("compute") == 0.0


def test_all_ranks_together():
    account = Account((FIRST, SECOND))
    assert account.parts == Parts(12.0, 3.0, 4.0, 1.0)
    assert account.steps_per_s == 1.0  # the slowest sets the pace
    assert Account().parts == Parts()
    assert Account().steps_per_s is Account((RankAccount(0),)).steps_per_s is None


def test_an_account_as_json():
    late = Straggler(2, 2.5, 0.8333333, 9, ((Site("train.py", 7, "main"), 2.5),), "loads data longer")
    told = json.loads(json.dumps(Account((FIRST, SECOND), (late,), "one", 0.98765432, notes=("few calls",)).to_json()))
    assert (told["schema"], told["pattern"], told["covered"], told["host_only"]) == (1, "one", 0.9877, False)
    assert told["parts"] == {"compute": 12.0, "waiting": 3.0, "communication": 4.0, "data": 1.0, "held": 0.0}
    first = told["ranks"][0]
    assert [first[f"{name}_s"] for name in PARTS] == [4.0, 3.0, 2.0, 1.0, 0.0]
    assert (first["wall_s"], first["other_s"], first["steps"], first["device"]) == (12.0, 2.0, 10, "cpu")
    assert first["step"]["compute"] == 0.4 and told["ranks"][1]["step"] is None
    assert first["waited_for"] == [{"rank": 2, "seconds": 2.5}, {"rank": 1, "seconds": 0.5}]
    assert told["stragglers"] == [
        {
            "rank": 2,
            "waited_s": 2.5,
            "share": 0.8333,
            "times": 9,
            "sites": [{"file": "train.py", "line": 7, "seconds": 2.5}],
            "because": "loads data longer",
        }
    ]
    assert told["notes"] == ["few calls"]


@pytest.mark.parametrize("part", PARTS)
def test_a_negative_or_empty_total_has_no_shares(part):
    assert Parts(compute=-1.0).share(part) == 0.0
