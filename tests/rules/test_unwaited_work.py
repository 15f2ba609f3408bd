"""Works that nobody waits for."""

from __future__ import annotations

from ddpnb.recording.calls import CallState
from ddpnb.rules.unwaited_work import unwaited_work
from tests.rules.recordings import Script, asked, diagnose, line, recorded


def made(body):
    lines = "".join(f"    {one}\n" for one in body.splitlines())
    return Script(f"import torch.distributed as dist\n\ndef main(x, rank):\n{lines}")


def of_all(script, how="issues"):
    return recorded(lambda r: getattr(r, how)("all_reduce", script.at("reduce")).finishes(), script=script)


def test_what_only_the_source_shows_of_a_work_is_a_warning():
    """That the call is asynchronous and its tensor used too early was not recorded: the run counts as OK."""
    reduce = "work = dist.all_reduce(x, async_op=True)   # reduce\n"
    for script in (
        made(f"{reduce}x.sum()\nwork.wait()"),
        made("dist.all_reduce(x, async_op=True)   # reduce\nx.sum()"),
    ):
        taken = of_all(script, "calls")
        (found,) = asked(unwaited_work, taken)
        assert (found.severity, found.certainty, found.culprits) == ("warning", "likely", (0, 1, 2, 3))
        assert (found.hint.file, found.hint.line) == (script.file, script.line("reduce"))
        assert "by the source it is asynchronous" in found.summary and diagnose(taken).outcome == "ok"


def test_a_work_that_was_seen_to_be_thrown_away():
    script = made("if rank == 0:\n    dist.isend(x, 1)   # send\nelse:\n    dist.recv(x, 0)")

    def make(rank):
        if rank.rank:
            return rank.receives(0, line(40)).finishes()
        return rank.sends(1, script.at("send"), state=CallState.DROPPED).finishes()

    (found,) = asked(unwaited_work, recorded(make, script=script))
    assert (found.severity, found.culprits, found.where) == ("error", (0,), ((0, script.at("send")),))
    assert "discarded the Work" in found.summary


def test_a_use_under_a_condition_names_no_rank():
    """All ranks made the call; which of them came to the line that uses its tensor is not recorded."""
    script = made("dist.all_reduce(x, async_op=True)   # reduce\nif rank == 0:\n    print(x)   # read")
    (found,) = asked(unwaited_work, of_all(script))
    assert (found.culprits, found.sides) == ((), ((0,), (1,), (2,), (3,)))
    assert "which of these ranks reach it was not recorded" in found.hint.reason
    assert found.where == tuple((rank, script.at("reduce")) for rank in range(4))
    assert f"line {script.line('read')}" not in found.summary


def test_a_tensor_that_was_changed_before_the_wait():
    """Torch has counted: an error, and where one line between the two changes something, it is the possible cause."""
    script = made(
        "works = reduce_all(grads)   # reduce\nfor g in grads:\n    g /= 2   # change\nworks[0].wait()   # wait"
    )

    def make(rank):
        if rank.rank != 2:
            waited = {"file": script.file, "line": script.line("wait"), "function": "main"}
            rank.phase("changed in flight", "done", script.at("reduce"), operation="all_reduce", waited=waited)
        return rank.calls("all_reduce", script.at("reduce")).finishes()

    told = diagnose(recorded(make, script=script))
    (found,) = told.findings
    assert (found.code, found.severity, found.certainty, found.culprits) == ("DDP316", "error", "proven", (0, 1, 3))
    assert found.hint.line == script.line("change") and told.outcome == "divergence"
    assert found.summary.startswith("Ranks 0, 1 and 3 changed the tensor of all_reduce")
