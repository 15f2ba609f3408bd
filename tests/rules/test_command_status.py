"""The command that started the ranks decides whether the job succeeded."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from ddpnb.recording import recording_file
from ddpnb.rules.diagnose import diagnose
from tests.rules.recordings import Rank, line, record, recorded
from tests.rules.test_exit_status import printed


def diagnosed(*ranks: Rank, command: int | None = 0, **host):
    found = diagnose(replace(record(*ranks, **host), command=command))
    return found.outcome, [(one.code, one.severity) for one in found.findings]


def worked(rank: int) -> Rank:
    return Rank(rank, 2).joined().calls("all_reduce", line(5))


def test_an_exception_of_a_rank_is_a_note():
    ranks = worked(0).finishes(), worked(1).raises("ValueError", "bad", line(9))
    assert diagnosed(*ranks, command=None) == diagnosed(*ranks, command=1) == ("crash", [("DDP312", "error")])
    assert diagnosed(*ranks) == ("ok", [("DDP312", "note")])
    found = diagnose(replace(record(*ranks), command=0))
    assert found.exit_codes == {0: 0, 1: 1} and "ValueError: bad" in found.findings[0].summary


def test_a_rank_that_was_recorded_while_it_waited_for_one_that_failed():
    """torchrun ... || true: the launcher has ended it since."""
    ranks = worked(0).waits("barrier", line(7)), worked(1).raises("RuntimeError", "no", line(6))
    assert diagnosed(*ranks, command=1) == ("crash", [("DDP312", "error")])
    assert diagnosed(*ranks) == ("ok", [("DDP312", "note")])


@pytest.mark.parametrize("code", [-signal.SIGTERM, -signal.SIGKILL])
def test_a_parent_ends_its_ranks(code):
    """It has their results: nothing is said about a memory that ran out, if nothing is known of one."""
    ranks = worked(0).dies(code), worked(1).dies(code)
    assert diagnosed(*ranks) == ("ok", [])
    outcome, findings = diagnosed(*ranks, command=1)
    assert (outcome, {severity for _, severity in findings}) == ("crash", {"error"})


def test_a_rank_that_the_kernel_ended_is_a_note():
    ranks = worked(0).finishes(), worked(1).dies(-signal.SIGKILL)
    assert diagnosed(*ranks, oom_kills_before=1, oom_kills=2) == ("ok", [("DDP706", "note")])


def test_ranks_that_fail_and_exit_with_0():
    taken = recorded(lambda r: (r.writes(printed()) if r.rank == 1 else r).finishes(), world=2)
    assert diagnose(taken).outcome == "crash"
    found = diagnose(replace(taken, command=0))
    assert (found.outcome, [(one.code, one.severity) for one in found.findings]) == ("ok", [("DDP701", "note")])


def test_wrong_numbers_stay_wrong():
    """The command cannot know it."""
    ranks = (
        Rank(rank, 2).calls("all_reduce", line(5), reduce_op=op).raises("ValueError", "later", line(7))
        for rank, op in enumerate(("sum", "max"))
    )
    outcome, findings = diagnosed(*ranks)
    assert (outcome, findings[0]) == ("divergence", ("DDP305", "error"))


def test_ranks_that_never_came_are_not_waited_for():
    found = diagnose(replace(record(worked(0).finishes(), Rank(1, 2).absent()), command=0))
    assert (found.outcome, found.settled, found.exit_codes) == ("ok", True, {0: 0, 1: None})


def test_it_is_kept_in_a_file(tmp_path):
    taken = replace(record(worked(0).dies(-signal.SIGTERM), worked(1).finishes()), command=0)
    recording_file.save(taken, tmp_path / "r.ddpnb")
    assert diagnose(recording_file.load(tmp_path / "r.ddpnb")).outcome == "ok"
