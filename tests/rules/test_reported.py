"""Findings of reports: what logs and dumps can prove, and what remains open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.calls import Call, CallState, Group, Site
from ddpnb.recording.ending import Ending
from ddpnb.recording.stacks import Frame, Stack
from ddpnb.reports.facts import (
    NOBODY,
    Calls,
    CallSeen,
    CheckpointPassed,
    Ended,
    GroupName,
    Members,
    Message,
    Speaker,
    StacksSeen,
    Waiting,
    WorldSize,
)
from tests.reports.told import WORLD, diagnosis, died, progress, raised, signature, waits

TORCH = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def only(*facts, size=0):
    told = diagnosis(*facts, size=size)
    assert len(told.errors) == 1, [finding.code for finding in told.findings]
    return told.errors[0]


def test_a_rank_that_never_spoke():
    finding = only(waits(0, 57), waits(2, 57), waits(3, 57), size=4)
    assert (finding.code, finding.culprits, finding.waiting) == ("DDP301", (1,), (0, 2, 3))
    assert (finding.collective.op, finding.collective.seq) == ("all_reduce", 57)
    assert finding.certainty == "likely"


def test_rank_0_never_spoke():
    assert only(waits(1, 57), waits(2, 57)).culprits == (0,)


def test_a_rank_that_is_known_to_be_behind():
    finding = only(waits(0, 57), waits(2, 57), progress(1, 56, 56), size=3)
    assert (finding.code, finding.culprits, finding.certainty) == ("DDP301", (1,), "timed")
    assert "after #56" in " ".join(finding.evidence)


def test_one_of_two_ranks_spoke():
    """Whether the other one made the call is not known: this may be the output of one rank."""
    finding = only(waits(0, 57), size=2)
    assert (finding.code, finding.culprits, finding.waiting) == ("DDP318", (), (0,))


def test_one_of_many_ranks_spoke_so_nobody_is_named():
    told = diagnosis(waits(0, 57), size=8)
    assert told.errors[0].code == "DDP318"
    assert told.errors[0].culprits == ()
    assert any("ranks 1-7" in note for note in told.notes)


def test_the_number_of_ranks_is_not_known():
    assert any("number of ranks" in note for note in diagnosis(waits(0, 57), waits(2, 57)).notes)
    assert not any("number of ranks" in note for note in diagnosis(waits(0, 57), size=2).notes)


def test_a_rank_thousands_of_calls_ahead_waits_in_the_first_that_is_not_complete():
    finding = only(progress(0, 12345, 2344), progress(1, 2344, 2344), size=2)
    assert (finding.code, finding.culprits, finding.waiting) == ("DDP301", (1,), (0,))
    assert finding.collective.seq == 2345


@pytest.mark.parametrize(
    ("other", "code"),
    [({"op": "broadcast"}, "DDP302"), ({"elements": 512}, "DDP303")],
)
def test_calls_that_differ(other, code):
    finding = only(waits(0, 57), waits(1, 57, **other), waits(2, 57))
    assert (finding.code, finding.culprits, finding.waiting) == (code, (1,), (0, 2))
    assert finding.certainty == "proven"
    assert finding.where == ()
    assert "unknown place" not in str(finding)


def test_calls_of_two_ranks_that_differ_have_no_culprit():
    finding = only(waits(0, 57), waits(1, 57, op="broadcast"))
    assert (finding.code, finding.culprits, finding.sides) == ("DDP302", (), ((0,), (1,)))


def test_crossed_groups():
    groups = {
        name: GroupName(name, ranks=ranks) for name, ranks in zip("1234", ((0, 1), (1, 3), (3, 2), (2, 0)), strict=True)
    }
    finding = only(
        *(waits(rank, 5, group=groups[name]) for rank, name in ((0, "1"), (1, "2"), (3, "3"), (2, "4"))), size=4
    )
    assert finding.code == "DDP306"


def test_a_group_of_which_a_member_is_missing():
    group = GroupName("3", "mesh_tp", ranks=(4, 6))
    finding = only(Members(group), waits(4, 12, group=group), progress(6, 11, 11, group=group), size=8)
    assert (finding.code, finding.culprits, finding.waiting) == ("DDP301", (6,), (4,))
    assert str(finding.collective.group) == "mesh_tp"


def test_the_time_out_ended_all_ranks():
    told = diagnosis(waits(0, 57), died(0, -6, root=True), waits(1, 57), died(1, -6), died(2, -15), size=3)
    (finding,) = told.errors
    assert (told.outcome, finding.code, finding.culprits) == ("hang", "DDP301", (2,))
    assert told.exit_codes == {0: -6, 1: -6, 2: -15}


def test_a_rank_that_was_killed_is_the_cause_of_the_time_out():
    finding = only(waits(0, 57), died(0, -6), died(1, -9, root=True), size=2)
    assert (finding.code, finding.culprits, finding.waiting) == ("DDP311", (1,), (0,))


def test_a_rank_that_raised_is_the_cause_of_the_time_out():
    finding = only(waits(0, 57), raised(1, "ValueError", "bad sample"), size=2)
    assert (finding.code, finding.culprits) == ("DDP312", (1,))


def test_an_error_of_nobody_known_may_be_that_of_the_rank_for_which_the_others_waited():
    told = diagnosis(
        waits(0, 57),
        waits(2, 57),
        Message(NOBODY, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB."),
        size=3,
    )
    assert [finding.code for finding in told.errors][0] == "DDP205"
    assert (told.errors[0].culprits, told.errors[0].certainty) == ((1,), "likely")


def test_an_error_of_nobody_known_alone():
    finding = only(Message(NOBODY, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB."))
    assert (finding.code, finding.culprits) == ("DDP205", ())


def test_all_ranks_wait_in_the_same_call():
    finding = only(waits(0, 57), waits(1, 57), size=2)
    assert (finding.code, finding.culprits) == ("DDP318", ())


def test_a_rank_waits_in_a_call_that_the_others_completed():
    finding = only(waits(0, 58), waits(1, 57), size=2)
    assert finding.code == "DDP318"
    assert "all_reduce #57" in finding.summary and "which rank 0 completed" in finding.summary


def test_a_call_that_was_not_received():
    finding = only(
        CallSeen(Speaker(0), GroupName("0"), 0, signature("recv"), CallState.WAITING, peer=1, waited_s=60.0), size=2
    )
    assert (finding.code, finding.culprits) == ("DDP307", (1,))


def test_monitored_barrier_names_the_missing_rank():
    text = "Ranks 2 failed to pass monitoredBarrier in 30000 ms"
    finding = only(raised(0, "RuntimeError", text), Waiting(Speaker(0), "monitored_barrier", (2,), 30), size=4)
    assert (finding.code, finding.culprits) == ("DDP301", (2,))


def test_time_outs_of_gloo_in_tracebacks():
    text = "[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete"
    frames = (Frame("train.py", 44, "main"), Frame(TORCH, 2810, "all_reduce", user=False))
    finding = only(*(raised(rank, "RuntimeError", text, frames=frames) for rank in (0, 2)), size=3)
    assert (finding.code, finding.culprits, finding.waiting) == ("DDP301", (1,), (0, 2))
    assert [(rank, site.line) for rank, site in finding.where] == [(0, 44), (2, 44)]


def test_a_launcher_stops_the_rank_that_did_not_time_out():
    text = "[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 4000ms for recv operation to complete"
    frames = (Frame("train.py", 44, "main"), Frame(TORCH, 2810, "all_reduce", user=False))
    finding = only(*(raised(rank, "RuntimeError", text, frames=frames) for rank in (0, 2)), died(1, -15))
    assert (finding.code, finding.culprits, finding.waiting) == ("DDP301", (1,), (0, 2))
    assert "idle" not in str(finding), "nothing says what rank 1 did"
    assert "py-spy" in finding.remedy


def stack(rank, *frames, idle=True):
    return StacksSeen(Speaker(rank, 100 + rank), (Stack("MainThread", frames, main=True),), idle)


IN_ALL_REDUCE = (Frame("train.py", 44, "main"), Frame(TORCH, 2810, "all_reduce", user=False))


def test_stacks_alone():
    here = [stack(rank, *IN_ALL_REDUCE) for rank in (0, 2)]
    finding = only(*here, stack(1, Frame("train.py", 31, "load"), idle=True))
    assert (finding.code, finding.culprits, finding.waiting) == ("DDP313", (1,), (0, 2))
    assert "for 0 s" not in str(finding)
    finding = only(*here, stack(1, Frame("train.py", 31, "load"), idle=False))
    assert (finding.code, finding.culprits) == ("DDP301", (1,))
    assert (1, 31) in [(rank, site.line) for rank, site in finding.where]
    finding = only(*here, stack(1, Frame("train.py", 50, "main"), Frame(TORCH, 4810, "barrier", user=False)))
    assert (finding.code, finding.culprits) == ("DDP302", (1,))
    finding = only(*here, stack(1, *IN_ALL_REDUCE))
    assert (finding.code, finding.culprits) == ("DDP318", ())
    assert "on this host" not in str(finding)


def test_ranks_that_were_stopped_once_their_stacks_were_taken():
    stacks = [stack(0, *IN_ALL_REDUCE), stack(1, Frame("train.py", 31, "load"))]
    finding = only(*stacks, *(died(rank, -15) for rank in (0, 1)))
    assert (finding.code, finding.culprits, finding.waiting) == ("DDP313", (1,), (0,))
    assert only(*stacks, died(1, -11)).code == "DDP311"


def test_a_rank_that_passed_no_further_checkpoint():
    passed = [
        CheckpointPassed(Speaker(rank), number, name)
        for rank, number, name in ((0, 9, "start logger"), (1, 8, "seed"), (1, 10, "wrap"))
    ]
    finding = only(*passed)
    assert (finding.code, finding.culprits, finding.waiting, finding.certainty) == ("DDP313", (0,), (1,), "likely")


def test_nothing_is_wrong():
    told = diagnosis(progress(0, 57, 57), progress(1, 57, 57), size=2)
    assert (told.outcome, told.findings) == ("ok", ())
    assert "no problem is visible" in str(told)


def test_a_file_without_any_rank():
    assert diagnosis(WorldSize(4)).outcome == "ok"


def test_ranks_wait_in_groups_whose_members_no_file_names():
    names = [GroupName("1"), GroupName("2"), WORLD]
    finding = only(*(waits(rank, 1, group=group) for rank, group in enumerate(names)), size=3)
    assert (finding.code, finding.culprits, finding.certainty) == ("DDP306", (0, 1, 2), "likely")


def dumped(rank, first, last, state):
    group = Group((0, 1), name="0", label="default_pg")
    calls = [
        Call(number, group, seq, signature("all_reduce", dtype="float32"), Site("train.py", 9, "step"), state)
        for number, seq in enumerate(range(first, last + 1), first)
    ]
    if state is CallState.ISSUED:
        calls[0] = replace(calls[0], state=CallState.WAITING)
    return Calls(Speaker(rank), tuple(calls), forgotten=first - 1)


def test_the_first_call_that_a_rank_did_not_make_was_overwritten_in_the_dumps_of_the_others():
    finding = only(dumped(0, 10346, 10360, CallState.ISSUED), dumped(1, 2300, 2344, CallState.COMPLETED), size=2)
    assert (finding.code, finding.culprits, finding.waiting) == ("DDP301", (1,), (0,))
    assert (finding.collective.op, finding.collective.seq) == ("all_reduce", 2345)
    assert "#2345 to #10345 were overwritten" in finding.evidence[0]


def interrupted(rank, *frames):
    return raised(rank, "KeyboardInterrupt", "", frames=frames)


def test_ctrl_c_shows_where_the_ranks_were():
    told = diagnosis(
        interrupted(0, *IN_ALL_REDUCE), interrupted(1, Frame("train.py", 54, "main")), interrupted(2, *IN_ALL_REDUCE)
    )
    (finding,) = told.errors
    assert (told.outcome, finding.code, finding.culprits, finding.waiting) == ("hang", "DDP301", (1,), (0, 2))
    assert "Rank 1 was running at train.py:54" in " ".join(finding.evidence)
    assert any("interrupted" in note for note in told.notes)


def test_ctrl_c_outside_any_collective_is_what_ended_the_ranks():
    told = diagnosis(*(interrupted(rank, Frame("train.py", 54, "main")) for rank in (0, 1)))
    assert (told.outcome, told.errors) == ("interrupted", ())


def test_an_error_before_ctrl_c_is_the_cause():
    told = diagnosis(interrupted(0, *IN_ALL_REDUCE), raised(1, "ValueError", "a bad record"))
    assert told.errors[0].culprits == (1,)
    assert "ValueError" in told.errors[0].summary


def test_a_process_that_was_stopped_is_no_cause_where_stacks_are_known():
    stopped = Ended(NOBODY, Ending("died", -2))
    finding = only(interrupted(0, *IN_ALL_REDUCE), interrupted(1, Frame("train.py", 54, "main")), stopped)
    assert finding.code == "DDP301"
