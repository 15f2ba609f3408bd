"""DDP707: a script that starts its ranks itself under a launcher that starts ranks too."""

from __future__ import annotations

import pytest

from ddpnb.recording.facts.patience import PATIENCE
from tests.rules.recordings import Rank, diagnose, line, record

SPAWN = "torch.multiprocessing.spawn"
TAKEN = "-- Process 0 terminated with the following error:\nDistNetworkError: port: 29500, EADDRINUSE"


def starts(rank, **facts):
    facts = {"how": SPAWN, "count": 2, "joins": True, "command": "python train.py --lr 1", **facts}
    return Rank(rank, 2).absent().phase("ranks started", "done", line(9), **facts)


def found(*ranks):
    return diagnose(record(*ranks))


def test_ranks_that_nobody_watched_are_a_warning():
    diagnosis = found(*(starts(rank).finishes() for rank in range(2)))
    assert (diagnosis.outcome, diagnosis.errors) == ("ok", ())
    (finding,) = diagnosis.findings
    assert (finding.code, finding.severity, finding.certainty) == ("DDP707", "warning", "likely")
    assert (finding.culprits, {site.line for _, site in finding.where}) == ((0, 1), {9})
    assert "started 2 times" in finding.summary and "started 2 processes" in finding.evidence[0]
    assert "(in a cell of a notebook with ! before it): ddpnb run -- python train.py --lr 1." in finding.remedy


def test_one_copy_is_not_started_twice():
    (finding,) = found(starts(0, command="", count=1, how="multiprocessing.Process").finishes()).findings
    assert "times" not in finding.summary and "ddpnb run -- python SCRIPT" in finding.remedy


@pytest.mark.parametrize(
    "make",
    [
        lambda rank: starts(rank).phase("init_process_group", "done", world_size=2).finishes(),
        lambda rank: starts(rank).phase("init_process_group", "open", world_size=2).finishes(),
        lambda rank: Rank(rank, 2).absent().finishes(),
    ],
    ids=["helpers of a rank", "will be a rank", "nothing"],
)
def test_helpers_are_no_ranks(make):
    assert "DDP707" not in [finding.code for finding in found(make(0), make(1)).findings]


def test_the_second_copy_finds_the_port_in_use():
    diagnosis = found(starts(0).raises("ProcessRaisedException", TAKEN, line(9)), starts(1).finishes())
    assert diagnosis.outcome == "crash"
    assert [(f.code, f.severity) for f in diagnosis.findings] == [("DDP707", "error")]
    assert any("ProcessRaisedException" in text for text in diagnosis.findings[0].evidence)


def test_an_exit_after_the_port_was_in_use():
    diagnosis = found(*(starts(rank).writes("EADDRINUSE\n").exits(1) for rank in range(2)))
    assert (diagnosis.outcome, [f.code for f in diagnosis.findings]) == ("crash", ["DDP707"])


def test_another_failure_of_its_processes_comes_first():
    diagnosis = found(*(starts(rank).raises("ProcessRaisedException", "KeyError: 3", line(9)) for rank in range(2)))
    assert [f.code for f in diagnosis.findings] == ["DDP312", "DDP707"]


def test_ranks_that_wait_for_their_own():
    diagnosis = found(*(starts(rank).idles(PATIENCE, line(9), waits_on="a child process") for rank in range(2)))
    assert (diagnosis.outcome, diagnosis.settled) == ("hang", True)
    (finding,) = diagnosis.findings
    assert (finding.code, finding.severity, finding.culprits) == ("DDP707", "error", (0, 1))
    assert any("a child process" in text for text in finding.evidence)
