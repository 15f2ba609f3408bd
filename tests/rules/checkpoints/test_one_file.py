"""Checkpoints that several ranks write to one file."""

from __future__ import annotations

from tests.rules.recordings import asked, line, recorded

SAVED = line(22)
PATH = "/home/user/last.pt"


def saves(rank, path):
    return rank.event("checkpoint saved", SAVED, path=path, keys=["model"]).finishes()


def test_two_ranks_that_write_one_file():
    (found,) = asked("DDP603", recorded(lambda r: saves(r, PATH if r.rank in (0, 3) else f"/home/user/{r.rank}.pt")))
    assert (found.code, found.severity, found.culprits) == ("DDP603", "warning", (0, 3))
    assert PATH in found.summary


def test_files_of_their_own():
    assert not asked("DDP603", recorded(lambda r: saves(r, f"/home/user/{r.rank}.pt")))
    assert not asked("DDP603", recorded(lambda r: saves(r, "/dev/null")))
