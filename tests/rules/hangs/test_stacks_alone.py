"""Recordings of jobs without a recorder: stacks and the state of the processes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.ending import Ending
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import Process, RankRecord, Recording
from ddpnb.recording.stacks import Frame, Stack
from ddpnb.render.views.board import tiles
from ddpnb.render.views.status import status
from ddpnb.rules import diagnose as module
from tests.rules.recordings import Script, diagnose

TORCH = "/venv/lib/python3.12/site-packages/torch"
C10D = f"{TORCH}/distributed/distributed_c10d.py"
SCRIPT = Script("""
    def main(rank):
        setup()  # setup
        all_reduce(loss)  # reduce
        if rank == 0:
            barrier()  # barrier
        sleep()  # sleep

    def train(rank):
        for step in range(9):
            evaluate()  # evaluate
            all_reduce(loss)  # looped
            write()  # write

    def overlap():
        work = all_reduce(loss, async_op=True)
        work.wait()  # wait
""")


def frame(mark, function="main", **variables):
    return Frame(SCRIPT.file, SCRIPT.line(mark), function, locals=variables)


def rank(number, *frames, activity="idle", idle=20.0, still=None, pid=None, ending=None):
    """``frames``: of the user; names of functions of torch after them."""
    shown = [one if isinstance(one, Frame) else Frame(C10D, 3000, one, user=False) for one in frames]
    process = Process(activity, idle, still_s=idle if still is None else still)
    stacks = (Stack("MainThread", tuple(shown), main=True),) if shown else ()
    return RankRecord(
        number, 1000 + number if pid is None else pid, stacks=stacks, process=process, ending=ending, unrecorded=True
    )


def ended(number):
    return rank(number, activity="gone", pid=0, ending=Ending("ended"))


def elsewhere(number):
    """A rank of another host."""
    return replace(rank(number, pid=0), process=Process())


def recording(*ranks):
    return Recording(len(ranks), {one.rank: one for one in ranks}, {SCRIPT.file: SCRIPT.text})


def found(*ranks):
    diagnosis = diagnose(recording(*ranks))
    assert all(finding.certainty == "likely" for finding in diagnosis.findings)
    assert (diagnosis.outcome == "hang") is diagnosis.settled
    return diagnosis.findings


def the_finding(*ranks):
    (finding,) = found(*ranks)
    assert "No recorder" in " ".join(finding.evidence)
    return finding


def test_a_rank_that_is_blocked_elsewhere():
    finding = the_finding(rank(0, frame("reduce"), "all_reduce"), rank(1, frame("setup")))
    assert (finding.code, finding.culprits, finding.waiting) == ("DDP313", (1,), (0,))
    assert [site.line for _, site in finding.where] == [SCRIPT.line("setup"), SCRIPT.line("reduce")]
    assert any("rank 0 has been in all_reduce for 20 s" in text for text in finding.evidence)
    assert not any("init_process_group" in text for text in finding.evidence)  # whether it was called is not known


def test_no_second_look_can_prove_more():
    taken = recording(rank(0, frame("reduce"), "all_reduce"), rank(1, frame("setup")))
    found_at_once = module.diagnose(taken)
    assert (found_at_once.outcome, found_at_once.errors[0].code) == ("hang", "DDP313")


def test_a_rank_that_is_behind_the_call_did_not_make_it():
    finding = the_finding(rank(0, frame("barrier"), "barrier"), rank(1, frame("sleep")))
    assert (finding.code, finding.culprits, finding.waiting) == ("DDP301", (1,), (0,))
    assert "is past it" in finding.summary


@pytest.mark.parametrize("mark", ["evaluate", "write"])
def test_in_a_loop_a_later_line_may_be_of_an_earlier_iteration(mark):
    waits, other = rank(0, frame("looped", "train"), "all_reduce"), rank(1, frame(mark, "train"))
    assert the_finding(waits, other).code == "DDP313"


@pytest.mark.parametrize("file", ["_dynamo/convert_frame.py", "_inductor/async_compile.py"])
def test_a_rank_that_compiles_is_a_straggler_although_it_only_waits_for_a_compiler(file):
    inside = Frame(f"/venv/lib/torch/{file}", 500, "wait", user=False)
    (note,) = found(rank(0, frame("looped", "train"), "all_reduce"), rank(1, frame("write", "train"), inside))
    assert (note.code, note.severity, note.culprits) == ("DDP315", "note", (1,))
    assert (
        note.evidence[0].startswith("Rank 1 is inside of torch.compile at ")
        and "TORCHINDUCTOR_CACHE_DIR" in note.remedy
    )


def test_a_rank_that_has_ended():
    finding = the_finding(rank(0, frame("reduce"), "all_reduce"), ended(1))
    assert (finding.code, finding.culprits) == ("DDP301", (1,))
    assert "Rank 1 ended (its exit status is not known)." in finding.evidence


def test_a_rank_that_died():
    killed = rank(1, activity="gone", ending=Ending("died", -9))
    (finding,) = diagnose(recording(rank(0, frame("reduce"), "all_reduce"), killed)).findings
    assert (finding.code, finding.culprits, finding.certainty) == ("DDP311", (1,), "likely")


def test_different_calls():
    ranks = [rank(number, frame("reduce"), "all_reduce") for number in range(3)]
    finding = the_finding(*ranks, rank(3, frame("barrier"), "barrier"))
    assert (finding.code, finding.culprits, finding.waiting) == ("DDP302", (3,), (0, 1, 2))
    tie = the_finding(ranks[0], rank(1, frame("barrier"), "barrier"))
    assert (tie.code, tie.culprits, tie.sides) == ("DDP302", (), ((0,), (1,)))


def test_the_same_call_at_another_line():
    finding = the_finding(
        rank(0, frame("looped", "train", step="7"), "all_reduce"), rank(1, frame("reduce", step="9"), "all_reduce")
    )
    assert finding.code == "DDP302"
    assert "step is 7 on rank 0, 9 on rank 1." in finding.evidence


def test_all_in_the_same_call():
    ranks = [rank(n, frame("reduce", rank=str(n), loss="<Tensor>"), "all_reduce") for n in range(2)]
    finding = the_finding(*ranks)
    assert (finding.code, finding.culprits, finding.waiting) == ("DDP318", (), (0, 1))
    assert not any(" on rank 1" in text for text in finding.evidence)


def test_a_wait_for_a_work_is_inferred_from_the_line():
    finding = the_finding(rank(0, frame("reduce"), "all_reduce"), rank(1, frame("wait", "overlap")))
    assert (finding.code, finding.sides) == ("DDP302", ((0,), (1,)))
    assert any("inferred from the text" in text for text in finding.evidence)


def test_point_to_point():
    finding = the_finding(rank(0, frame("reduce"), "send"), rank(1, frame("reduce"), "recv"))
    assert (finding.code, finding.culprits) == ("DDP307", ())


def test_start_up_without_all_ranks():
    finding = the_finding(rank(0, frame("setup"), "init_process_group"), elsewhere(1))
    assert (finding.code, finding.culprits, finding.waiting) == ("DDP102", (), (0,))
    assert "rank 1 has no process on this host" in finding.summary


def test_ranks_on_other_hosts_are_named():
    ranks = [rank(n, frame("reduce"), "all_reduce") for n in range(2)]
    finding = the_finding(*ranks, elsewhere(2))
    assert finding.code == "DDP318"
    assert any(text.startswith("Rank 2 has no process on this host") for text in finding.evidence)


def test_a_stopped_rank():
    finding = the_finding(rank(0, frame("reduce"), "all_reduce"), rank(1, activity="stopped"))
    assert (finding.code, finding.culprits) == ("DDP314", (1,))


def test_a_rank_that_computes_is_a_straggler():
    finding = the_finding(
        rank(0, frame("reduce"), "all_reduce"), rank(1, frame("setup"), activity="computing", idle=0.0)
    )
    assert (finding.code, finding.severity, finding.culprits) == ("DDP315", "note", (1,))


@pytest.mark.parametrize(
    "ranks",
    [
        # Before patience is over, and while the main thread still runs now and then.
        [rank(0, frame("reduce"), "all_reduce", idle=3.0), rank(1, frame("setup"), idle=3.0)],
        [rank(0, frame("reduce"), "all_reduce", still=1.0), rank(1, frame("setup"))],
        [rank(0, frame("reduce"), "all_reduce", still=1.0), rank(1, frame("reduce"), "all_reduce", still=1.0)],
        [rank(0, frame("setup"), activity="computing"), rank(1, frame("setup"), activity="computing")],
        # A download on all ranks looks like this.
        [rank(0, frame("setup")), rank(1, frame("setup"))],
        [rank(0), rank(1)],
        [elsewhere(0), elsewhere(1)],
    ],
)
def test_no_finding(ranks):
    assert found(*ranks) == ()


def test_nobody_waits_for_long():
    finding = the_finding(rank(0, frame("setup"), idle=31.0), rank(1, frame("setup"), idle=31.0))
    assert (finding.code, finding.culprits) == ("DDP313", (0, 1))


def test_all_have_ended():
    diagnosis = diagnose(recording(ended(0), ended(1)))
    assert (diagnosis.outcome, diagnosis.settled, diagnosis.exit_codes) == ("ok", True, {0: None, 1: None})
    assert "exit status of some ranks is not known" in str(diagnosis)


def test_what_views_show():
    taken = recording(rank(0, frame("reduce"), "all_reduce"), rank(1, frame("setup")), rank(2), elsewhere(3))
    states = status(taken)
    assert [one.state for one in states] == [RankState.WAITING, RankState.BLOCKED, RankState.UNKNOWN, RankState.UNKNOWN]
    assert states[0].doing.startswith("waits in all_reduce at") and states[0].doing.endswith("by its stack")
    assert tiles(taken)[0].doing == "all_reduce" and tiles(taken)[0].since_s == 20.0


def test_it_is_the_same_from_a_file(tmp_path):
    taken = recording(rank(0, frame("reduce"), "all_reduce"), ended(1))
    taken.save(tmp_path / "a.ddpnb")
    from ddpnb.recording.recording_file import load

    assert diagnose(load(tmp_path / "a.ddpnb")) == diagnose(taken)
