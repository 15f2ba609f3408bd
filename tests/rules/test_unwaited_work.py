"""Works that nobody waits for."""

from __future__ import annotations

from ddpnb.model.calls import CallState
from ddpnb.rules import unwaited_work
from tests.rules.recordings import Script, diagnose, line, recorded, the_finding


def test_a_work_that_nobody_waits_for():
    script = Script("""
        import torch.distributed as dist

        def main(x):
            dist.all_reduce(x, async_op=True)   # reduce
            return x.sum()   # read
    """)
    at = script.at("reduce")
    found = the_finding(unwaited_work.find, recorded(lambda r: r.issues("all_reduce", at).finishes(), script=script))
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
    found = the_finding(unwaited_work.find, taken)
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

    found = the_finding(unwaited_work.find, recorded(make, script=script))
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
    found = the_finding(unwaited_work.find, recorded(lambda r: r.issues("all_reduce", at).finishes(), script=script))
    assert (found.code, found.culprits, found.sides) == ("DDP316", (), ((0,), (1,), (2,), (3,)))
    assert found.concerned == {0, 1, 2, 3}
    assert "which of these ranks reach it was not recorded" in found.hint.reason
    assert [(rank, site.line) for rank, site in found.where] == [(rank, at.line) for rank in range(4)]
    assert f"line {script.line('read')}" not in found.summary
