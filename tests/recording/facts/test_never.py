"""Ranks that are blocked outside any collective and can never continue."""

from __future__ import annotations

import pytest

from ddpnb.recording.recording import Child
from ddpnb.recording.stacks import Frame, Stack
from ddpnb.rules.diagnose import diagnose
from tests.rules.recordings import FILE, Rank, line, record

LOADER = Frame("/venv/lib/torch/utils/data/dataloader.py", 1200, "_get_data", user=False)
QUEUE = Frame("/usr/lib/python3.13/multiprocessing/queues.py", 113, "get", user=False)
TIMER = Frame("/home/me/ddpnb/.venv/lib/python3.13/threading.py", 1347, "run", user=False)
MINE = Frame(FILE, 7, "__getitem__")


def locked(rank, *by, idle=0.5, size=2):
    return Rank(rank, size).idles(idle, line(8), waits_on="a file lock on /cache", held_up_by=by)


def test_a_file_lock_whose_holder_waits_for_the_rank():
    found = diagnose(record(Rank(0, 2).waits("all_reduce", line(6)), locked(1, 0)))
    (finding,) = found.errors
    assert (found.outcome, found.settled) == ("hang", True)
    assert (finding.code, finding.culprits, finding.waiting, finding.certainty) == ("DDP313", (1,), (0,), "proven")
    assert "Rank 1 can never continue: rank 0 holds the lock and waits in turn." in finding.evidence


def test_a_file_lock_that_the_rank_holds_itself():
    (finding,) = diagnose(record(locked(0, 0), Rank(1, 2).waits("all_reduce", line(6)))).errors
    assert (finding.culprits, finding.certainty) == ((0,), "proven")
    assert "Rank 0 can never continue: it holds the lock itself, through another descriptor." in finding.evidence


def test_two_file_locks_in_opposite_order():
    ranks = locked(0, 1, size=3), locked(1, 0, size=3), Rank(2, 3).waits("all_reduce", line(6))
    (finding,) = diagnose(record(*ranks)).errors
    assert (finding.culprits, finding.waiting, finding.certainty) == ((0, 1), (2,), "proven")


@pytest.mark.parametrize(
    "ranks",
    [
        (Rank(0, 2).computes(line(6)), locked(1, 0)),
        (Rank(0, 2).idles(0.5, line(6)), locked(1, 0)),
        (Rank(0, 2).waits("all_reduce", line(6)).has_stack(Frame(FILE, 20, "save"), thread=99), locked(1, 0)),
        (Rank(0, 2).waits("all_reduce", line(6)).has_stack(TIMER, thread=99), locked(1, 0)),
        (Rank(0, 2).waits("all_reduce", line(6)), locked(1, -1)),
        (Rank(0, 2).waits("all_reduce", line(6)), locked(1, 0, -1)),
        (Rank(0, 2).waits("all_reduce", line(6)), locked(1)),
        (Rank(0, 2).finishes(), locked(1, 0)),
    ],
    ids=["computes", "idle", "another thread", "a timer", "another program", "one of two", "nobody known", "ended"],
)
def test_a_file_lock_that_may_be_released(ranks):
    assert diagnose(record(*ranks)).outcome == "ok"


def child(pid, *frames, **more):
    return Child(pid, stacks=(Stack("MainThread", frames, pid, main=True),), **{"status": "S", **more})


def loads(*children, idle=0.5):
    loading = Rank(1, 2).idles(idle).has_stack(Frame(FILE, 30, "main"), LOADER).has_children(*children)
    return record(Rank(0, 2).waits("all_reduce", line(6)), loading)


def test_a_worker_that_waits_for_a_lock_that_nobody_can_release():
    found = diagnose(loads(child(5, QUEUE), child(6, MINE, stuck=True)))
    (finding,) = found.errors
    assert (finding.code, finding.culprits, finding.certainty, found.settled) == ("DDP507", (1,), "proven", True)
    assert any("process 6 waits for a lock in its own memory" in line for line in finding.evidence)


def test_a_worker_that_has_exited_while_the_others_wait_for_their_next_task():
    (finding,) = diagnose(loads(child(5, QUEUE), child(6, status="Z"), idle=3.0)).errors
    assert (finding.code, finding.certainty) == ("DDP505", "proven")


@pytest.mark.parametrize(
    "recording",
    [
        loads(child(5, MINE), child(6, MINE, stuck=True)),
        loads(child(5, QUEUE), child(6, MINE)),
        loads(child(5, QUEUE), child(6, status="Z"), idle=0.5),
        loads(child(5, MINE), child(6, status="Z"), idle=3.0),
    ],
    ids=["another works", "may go on", "is replaced soon", "another may answer"],
)
def test_workers_that_may_still_answer(recording):
    assert diagnose(recording).outcome == "ok"
