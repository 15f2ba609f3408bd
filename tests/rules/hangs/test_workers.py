"""Ranks that wait for a process of their own: which one, and where does it stand?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.recording import Child
from ddpnb.recording.stacks import Frame, Stack
from ddpnb.rules.hangs.blocked import BLOCKED_ELSEWHERE
from tests.rules import recordings
from tests.rules.recordings import FILE, Rank, diagnose, line, record

LIBRARY = "/usr/lib/python3.11/"
TORCH = "/venv/lib/torch/utils/data/"


def library(file, function, at=10):
    return Frame(file, at, function, user=False)


def user(at, function):
    return Frame(FILE, at, function)


LOADING = (
    library(TORCH + "dataloader.py", "__next__"),
    library(TORCH + "dataloader.py", "_next_data"),
    library(TORCH + "dataloader.py", "_get_data"),
    library(TORCH + "dataloader.py", "_try_get_data"),
    library(LIBRARY + "multiprocessing/queues.py", "get"),
    library(LIBRARY + "multiprocessing/connection.py", "poll"),
)
RECEIVING = (
    library(LIBRARY + "multiprocessing/connection.py", "recv"),
    library(LIBRARY + "multiprocessing/connection.py", "_recv"),
)
FORKED = (user(5, "main"), *LOADING[:1], library(LIBRARY + "multiprocessing/process.py", "BaseProcess._bootstrap"))
WORKER = (*FORKED, library(TORCH + "_utils/worker.py", "_worker_loop"))
FETCHING = (*WORKER, library(TORCH + "_utils/fetch.py", "fetch"))
IDLE = (*WORKER, library(LIBRARY + "multiprocessing/queues.py", "get"))
STUCK = (*FETCHING, user(70, "__getitem__"), library(LIBRARY + "ssl.py", "read"))


def child(*frames, pid=100, status="S"):
    return Child(pid, "python train.py", status, 12.0, (Stack("MainThread", frames, main=True),) if frames else ())


def waiting(inside, *children, host=None):
    """Rank 1 stands in its loop, with these frames inside of line 5; the others wait for it."""
    made = [Rank(0).waits("all_reduce", line(6)), Rank(1).idles(20.0, line(5)), Rank(2).waits("all_reduce", line(6))]
    made[1].has_stack(user(5, "main"), *inside)
    taken = record(*made, world_size=3)
    ranks = {**taken.ranks, 1: replace(taken.ranks[1], children=children)}
    return replace(taken, ranks=ranks, host=host or {})


def refined(taken):
    (finding,) = diagnose(taken).errors
    assert finding.code in ("DDP313", "DDP507", "DDP505")
    return recordings.refined(taken, replace(finding, type=BLOCKED_ELSEWHERE))


def test_the_worker_that_is_stuck():
    finding = refined(waiting(LOADING, child(*IDLE, pid=100), child(*STUCK, pid=101), child(*IDLE, pid=102)))
    assert finding.code == "DDP507"
    assert (finding.culprits, finding.waiting) == ((1,), (0, 2))
    assert dict(finding.where)[1].line == 70 and dict(finding.where)[0].line == 6
    assert "101" in finding.evidence[0] and "__getitem__" in finding.evidence[0] and "read" in finding.evidence[0]


def test_the_parents_frames_in_a_forked_worker_are_not_its_own():
    finding = refined(waiting(LOADING, child(*IDLE)))
    assert dict(finding.where)[1].line == 5  # the loop's own line: nothing of the user's runs in the worker
    assert "get" in finding.evidence[0]


def test_a_stopped_worker():
    finding = refined(waiting(LOADING, child(*STUCK, pid=101), child(*IDLE, pid=102, status="T")))
    assert "102 is stopped" in finding.evidence[0]


def test_workers_that_could_not_be_looked_at():
    finding = refined(waiting(LOADING, child(pid=101)))
    assert finding.code == "DDP507" and "could not be inspected" in finding.evidence[0]


def test_an_environment():
    """Vectorised environments: all stand in the user's loop, one does not read its next order."""
    idle = (*FORKED, user(30, "serve"), *RECEIVING)
    held = (*FORKED, user(32, "serve"), user(44, "step"))
    finding = refined(waiting(RECEIVING, child(*idle, pid=1), child(*held, pid=2), child(*idle, pid=3)))
    assert finding.code == "DDP507" and dict(finding.where)[1].line == 44
    assert "child process" in finding.summary


def test_a_worker_that_died():
    dead = child(pid=103, status="Z")
    finding = refined(waiting(LOADING, child(*IDLE), dead, host={"oom_kills": 5, "oom_kills_before": 3}))
    assert finding.code == "DDP505" and finding.culprits == (1,) and "103" in finding.evidence[0]
    assert "2 processes" in finding.evidence[1]


def test_a_worker_that_was_done_before_the_others():
    finding = refined(waiting(LOADING, child(*STUCK, pid=101), child(pid=103, status="Z")))
    assert finding.code == "DDP507" and "101" in finding.evidence[0]


@pytest.mark.parametrize(
    ("inside", "children"),
    [
        ((), ()),
        ((library(LIBRARY + "threading.py", "wait"),), (child(*STUCK),)),
        ((library(LIBRARY + "subprocess.py", "wait"),), (child(),)),
        (RECEIVING, ()),
        ((library(TORCH + "_utils/fetch.py", "fetch"), user(60, "__getitem__")), ()),  # no workers: it waits itself
    ],
    ids=["nothing", "lock", "subprocess", "no children", "in the main process"],
)
def test_what_waits_for_something_else(inside, children):
    assert refined(waiting(inside, *children)).code not in ("DDP505", "DDP507")


def test_helpers_of_multiprocessing_are_no_workers():
    tracker = (library(LIBRARY + "multiprocessing/resource_tracker.py", "main"),)
    finding = refined(waiting(LOADING, child(*tracker, pid=1), child(*STUCK, pid=2)))
    assert "process 2" in finding.evidence[0]


def test_only_some_of_the_culprits_wait_for_a_worker():
    taken = waiting(LOADING, child(*STUCK))
    both = replace(diagnose(taken).errors[0], type=BLOCKED_ELSEWHERE, culprits=(1, 2), waiting=(0,))
    assert recordings.refined(taken, both) is both
