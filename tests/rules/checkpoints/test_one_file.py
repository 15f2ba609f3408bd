"""Files that several ranks use without waiting for each other."""

from __future__ import annotations

import pytest

from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.rules.checkpoints import one_file
from ddpnb.rules.hangs.endings import endings
from ddpnb.rules.rule import findings_of
from tests.rules.recordings import Rank, Script, asked, diagnose, line, record, recorded

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


SCRIPT = Script("""
    place = "/home/user/run"
    def main(rank):
        if rank == 0:
            os.remove(f"{place}/last.pt")   # remove
        else:
            state = torch.load(f"{place}/last.pt")   # load
        dist.barrier()   # barrier
""")


def absent(*removers, path="/home/user/run/last.pt", error="FileNotFoundError", also=False):
    """Three ranks, of which rank 1 ends as it does not find a file. ``also``: it removed one itself."""
    ranks = []
    for rank in (Rank(number, 3) for number in range(3)):
        rank.runs(SCRIPT, "remove" if rank.rank in removers or (also and rank.rank == 1) else "load")
        if rank.rank == 1:
            rank.raises(error, f"[Errno 2] No such file or directory: '{path}'", SCRIPT.at("load"))
        else:
            rank.waits("barrier", SCRIPT.at("barrier"))
        ranks.append(rank)
    taken = record(*ranks, script=SCRIPT)
    (failure,) = findings_of(taken, endings)
    draft = one_file.removed(Snapshot(taken), failure)
    found = [draft.finding((one_file.CHECKPOINT_RACE,))] if draft is not None else []
    assert not found or diagnose(taken).errors[0].summary == found[0].summary  # the engine asks it, before others
    return found


def test_a_file_that_another_rank_had_removed():
    (found,) = absent(0)
    assert (found.code, found.severity, found.certainty, found.culprits) == ("DDP603", "error", "likely", (0,))
    assert found.where[:2] == ((0, SCRIPT.at("remove")), (1, SCRIPT.at("load")))
    assert "last.pt" in found.summary and 'os.remove(f"{place}/last.pt")' in found.evidence[0]


@pytest.mark.parametrize(
    "more",
    [{"path": "/home/user/other.pt"}, {"also": True}, {"error": "OSError"}],
    ids=["another file", "it removed it too", "another error"],
)
def test_a_removal_that_explains_nothing(more):
    assert absent(0, **more) == absent() == []
