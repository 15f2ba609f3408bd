"""What checkpoints, sources and the end of the output tell."""

from __future__ import annotations

from ddpnb.diagnosis import checkpoints_and_exits
from ddpnb.diagnosis.diagnose import diagnose
from ddpnb.model.calls import CallState
from tests.diagnosis.recordings import Rank, Script, line, record

LOADED, SAVED, LEFT = line(21), line(22), line(40)
PATH = "/home/user/last.pt"


def recorded(make, world=4, script=None):
    return record(*(make(Rank(number, world)) for number in range(world)), script=script)


def the_finding(recording):
    (found,) = checkpoints_and_exits.find(recording)
    assert found.summary and found.remedy
    assert found in diagnose(recording).findings
    return found


def printed(last="ValueError: no loss", after=""):
    return f'Traceback (most recent call last):\n  File "/home/user/train.py", line 12, in main\n    step()\n{last}\n{after}'


def test_nothing_to_tell():
    assert checkpoints_and_exits.find(recorded(lambda r: r.calls("all_reduce", line(3)).finishes())) == []


# -- DDP701


def test_a_failure_that_was_printed_and_forgotten():
    taken = recorded(lambda r: (r.writes(printed()) if r.rank == 2 else r).finishes())
    found = the_finding(taken)
    assert (found.code, found.culprits, found.where) == ("DDP701", (2,), ((2, line(12)),))
    assert "ValueError" in found.summary


def test_the_line_is_the_users_where_a_hook_of_ours_lies_between():
    hook = '  File "/opt/ddpnb/recorder/phases.py", line 139, in new_group\n    original()\nValueError: no loss'
    taken = recorded(lambda r: r.writes(printed(last=hook)).finishes())
    assert the_finding(taken).where == tuple((rank, line(12)) for rank in range(4))


def test_a_traceback_from_which_the_script_went_on():
    taken = recorded(lambda r: r.writes(printed(after="epoch 2\nepoch 3\ndone\n")).finishes())
    assert checkpoints_and_exits.find(taken) == []


def leaves(rank, at=LEFT):
    return rank.event("process ends", at).dies(0)


def test_all_leave_by_force_and_one_of_them_too_early():
    def make(rank):
        if rank.rank == 1:
            return leaves(rank.calls("all_reduce", line(3)))
        return leaves(rank.calls("all_reduce", line(3)).calls("all_reduce", line(3), state=CallState.ISSUED))

    found = the_finding(recorded(make))
    assert (found.code, found.culprits, found.where) == ("DDP701", (1,), ((1, LEFT),))


def test_all_leave_by_force_after_the_same_calls():
    assert checkpoints_and_exits.find(recorded(lambda r: leaves(r.calls("all_reduce", line(3))))) == []


# -- DDP602: nothing loaded


def test_a_state_of_which_nothing_fits():
    told = {"strict": False, "matched": 0, "given": 2, "keys": ["module.fc.weight", "module.fc.bias"]}
    found = the_finding(recorded(lambda r: r.loads("model", LOADED, **told).finishes()))
    assert (found.code, found.severity, found.culprits) == ("DDP602", "error", (0, 1, 2, 3))
    assert found.where[0] == (0, LOADED) and "module.fc.weight" in found.evidence[0]


def test_a_state_of_which_a_part_fits():
    told = {"strict": False, "matched": 1, "given": 2}
    assert checkpoints_and_exits.find(recorded(lambda r: r.loads("model", LOADED, **told).finishes())) == []
    assert checkpoints_and_exits.find(recorded(lambda r: r.loads("model", LOADED).finishes())) == []


# -- DDP603, DDP413, DDP316


def saves(rank, path):
    return rank.event("checkpoint saved", SAVED, path=path, keys=["model"]).finishes()


def test_two_ranks_that_write_one_file():
    found = the_finding(recorded(lambda r: saves(r, PATH if r.rank in (0, 3) else f"/home/user/{r.rank}.pt")))
    assert (found.code, found.severity, found.culprits) == ("DDP603", "warning", (0, 3))
    assert PATH in found.summary


def test_files_of_their_own():
    assert checkpoints_and_exits.find(recorded(lambda r: saves(r, f"/home/user/{r.rank}.pt"))) == []
    assert checkpoints_and_exits.find(recorded(lambda r: saves(r, "/dev/null"))) == []


def test_an_attribute_that_is_set_on_the_wrapper():
    taken = recorded(
        lambda r: (r.event("attribute on wrapper", line(8), name="alpha") if r.rank == 1 else r).finishes()
    )
    found = the_finding(taken)
    assert (found.code, found.culprits, found.where) == ("DDP413", (1,), ((1, line(8)),))
    assert "model.module.alpha" in found.remedy


def test_a_work_that_nobody_waits_for():
    script = Script("""
        import torch.distributed as dist

        def main(x):
            dist.all_reduce(x, async_op=True)   # reduce
            return x.sum()   # read
    """)
    at = script.at("reduce")
    found = the_finding(recorded(lambda r: r.issues("all_reduce", at).finishes(), script=script))
    assert (found.code, found.culprits) == ("DDP316", (0, 1, 2, 3))
    assert (found.certainty, found.hint.file, found.hint.line) == ("likely", at.file, at.line)


def test_what_only_the_source_shows_of_a_work_is_a_warning():
    """That the call is asynchronous and its tensor used too early was not recorded: the run counts as OK."""
    script = Script("""
        import torch.distributed as dist

        def main(x):
            work = dist.all_reduce(x, async_op=True)   # reduce
            x.sum()
            work.wait()
    """)
    taken = recorded(lambda r: r.calls("all_reduce", script.at("reduce")).finishes(), script=script)
    found = the_finding(taken)
    assert (found.code, found.severity, found.culprits) == ("DDP316", "warning", (0, 1, 2, 3))
    assert found.summary.startswith("Ranks 0-3 called all_reduce") and "According to the source" in found.summary
    assert diagnose(taken).outcome == "ok"


def test_a_work_that_was_seen_to_be_thrown_away():
    script = Script("""
        import torch.distributed as dist

        def main(x, rank):
            if rank == 0:
                for peer in (1, 2, 3):
                    dist.isend(x, peer)   # send
            else:
                dist.recv(x, 0)
    """)

    def make(rank):
        if rank.rank:
            return rank.receives(0, line(40)).finishes()
        return rank.sends(1, script.at("send"), state=CallState.DROPPED).finishes()

    found = the_finding(recorded(make, script=script))
    assert (found.code, found.severity, found.culprits, found.where) == (
        "DDP316",
        "error",
        (0,),
        ((0, script.at("send")),),
    )
    assert "discarded the Work" in found.summary


def test_a_use_under_a_condition_names_no_rank():
    """All ranks made the call; which of them came to the line that uses its tensor is not recorded."""
    script = Script("""
        import torch.distributed as dist

        def main(x, rank):
            dist.all_reduce(x, async_op=True)   # reduce
            if rank == 0:
                print(x)   # read
    """)
    at = script.at("reduce")
    found = the_finding(recorded(lambda r: r.issues("all_reduce", at).finishes(), script=script))
    assert (found.code, found.culprits, found.sides) == ("DDP316", (), ((0,), (1,), (2,), (3,)))
    assert found.concerned == {0, 1, 2, 3}
    assert "which of these ranks reach it was not recorded" in found.hint.reason
    assert [(rank, site.line) for rank, site in found.where] == [(rank, at.line) for rank in range(4)]
    assert f"line {script.line('read')}" not in found.summary
