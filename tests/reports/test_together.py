from __future__ import annotations

from ddpnb.recording.calls import Call, CallState, Group, Signature, Site
from ddpnb.recording.ending import Ending
from ddpnb.recording.stacks import Frame, Stack
from ddpnb.reports.facts import (
    NOBODY,
    Calls,
    CallSeen,
    CheckpointPassed,
    Ended,
    GroupName,
    Identity,
    Members,
    Message,
    Speaker,
    StacksSeen,
    Unknown,
    Waiting,
    WorldSize,
)
from tests.reports.told import WORLD, diagnosis, died, progress, raised, report, signature, waits

TENSOR_PARALLEL = GroupName("3", "mesh_tp", ranks=(2, 3))


def test_a_rank_of_which_nothing_is_known_has_an_empty_record():
    taken = report(waits(0, 57), size=3)
    assert sorted(taken.ranks) == [0, 1, 2]
    assert [record.mentioned for record in taken.ranks.values()] == [True, False, False]


def test_in_a_very_large_world_which_a_damaged_line_may_make_the_ranks_of_which_something_is_known_are_listed():
    taken = report(waits(65535, 57), died(3, -9))
    assert (taken.world_size, sorted(taken.ranks)) == (65536, [3, 65535])
    assert diagnosis(waits(65535, 57), died(3, -9)).findings[0].culprits == (3,)


def test_the_world_is_as_large_as_a_file_says_or_as_the_highest_rank_that_occurs():
    assert report(waits(3, 57)).world_size == 4
    assert not report(waits(3, 57)).report.world_size_known
    known = report(waits(3, 57), size=8)
    assert (known.world_size, known.report.world_size_known) == (8, True)
    assert report(Waiting(Speaker(0), "monitored_barrier", (5,))).world_size == 6


def test_a_number_that_cannot_be_a_rank_is_none():
    taken = report(waits(10**9, 57), waits(0, 57))
    assert taken.world_size == 1


def test_the_members_of_a_group_come_from_any_file():
    taken = report(Members(TENSOR_PARALLEL), waits(2, 5, group=GroupName("3")), size=4)
    assert taken.ranks[2].calls[0].group == Group((2, 3))
    assert str(taken.ranks[2].calls[0].group) == "mesh_tp"


def test_members_that_no_file_names_are_those_that_use_the_group():
    taken = report(waits(1, 5, group=GroupName("7")), waits(3, 5, group=GroupName("7")), size=4)
    assert taken.ranks[3].calls[0].group.ranks == (1, 3)


def test_two_groups_of_equal_ranks_are_told_apart_by_their_names():
    groups = [GroupName(name, ranks=(0, 1)) for name in ("10", "2")]
    taken = report(*(waits(0, 5, group=group) for group in groups), size=4)
    assert {call.group.name: call.group.ordinal for call in taken.ranks[0].calls} == {"2": 0, "10": 1}


def test_the_default_group_has_one_identity_under_all_its_names():
    names = (GroupName(), GroupName("0"), GroupName("0", "default_pg"), GroupName("7", "default_pg"))
    taken = report(*(waits(rank, 5, group=group) for rank, group in enumerate(names)))
    assert {record.calls[0].group for record in taken.ranks.values()} == {Group((0, 1, 2, 3))}


def test_a_speaker_that_is_known_by_its_rank_in_a_group():
    group = GroupName("3", "mesh_tp", rank=1)
    said = CallSeen(NOBODY, group, 5, signature("all_reduce"))
    taken = report(Members(TENSOR_PARALLEL), said, size=4)
    assert [rank for rank, record in taken.ranks.items() if record.calls] == [3]


def test_a_speaker_that_is_known_by_its_process():
    taken = report(Identity(Speaker(1, 4711)), Ended(Speaker(pid=4711), Ending("died", -9)), size=2)
    assert taken.ranks[1].ending.signal_name == "SIGKILL"
    assert taken.ranks[1].pid == 4711


def test_equal_process_ids_on_two_hosts_are_two_ranks():
    hosts = [Identity(Speaker(rank, 4711, f"node{rank}")) for rank in (0, 1)]
    taken = report(*hosts, Ended(Speaker(pid=4711, host="node1"), Ending("died", -9)))
    assert [record.ending is not None for record in taken.ranks.values()] == [False, True]


def test_sizes_are_compared_only_where_all_files_give_them():
    unsized = CallSeen(Speaker(1), WORLD, 57, Signature("all_reduce"))
    calls = [record.calls[0] for record in report(waits(0, 57), unsized).ranks.values()]
    assert calls[0].signature.agreed == calls[1].signature.agreed == "all_reduce"
    sized = [record.calls[0] for record in report(waits(0, 57), waits(1, 57, elements=8)).ranks.values()]
    assert sized[0].signature.agreed != sized[1].signature.agreed


def _dumped(seq: int, state: CallState) -> Call:
    group = Group((0, 1), name="0", label="default_pg")
    return Call(seq, group, seq, signature("all_reduce", dtype="float32"), Site("train.py", 9, "main"), state)


def test_a_log_says_of_a_dumped_call_that_it_timed_out():
    dumped = Calls(Speaker(0), (_dumped(56, CallState.COMPLETED), _dumped(57, CallState.ISSUED)), forgotten=55)
    calls = report(dumped, waits(0, 57), size=2).ranks[0].calls
    assert [call.state for call in calls] == [CallState.COMPLETED, CallState.WAITING]
    assert calls[1].site == Site("train.py", 9, "main") and calls[1].signature.dtypes == ("float32",)


def test_a_rank_waits_in_the_call_behind_the_last_that_it_completed():
    record = report(progress(0, 12345, 2344), size=2).ranks[0]
    assert [(call.seq, call.state) for call in record.calls] == [(2345, CallState.WAITING)]
    assert record.reached[Group((0, 1)).key] == 12345
    assert not report(progress(0, 2344, 2344), size=2).ranks[0].calls


def test_a_traceback_says_more_than_the_exit_status_of_the_same_end():
    for facts in (
        (died(0, 1, root=True), raised(0, "ValueError", "bad")),
        (raised(0, "ValueError", "bad"), died(0, 1)),
    ):
        ending = report(*facts).ranks[0].ending
        assert (ending.how, ending.exception, ending.code) == ("raised", "ValueError", 1)


def test_the_first_failure_comes_before_the_others():
    taken = report(died(0, -15), died(1, -9, root=True), died(2, -11))
    assert taken.ranks[1].ending.at_ns < taken.ranks[2].ending.at_ns
    assert taken.ranks[0].ending is None and taken.report.statuses == ((0, -15),)  # by the launcher


def test_errors_of_nobody_known_are_kept():
    taken = report(Message(NOBODY, "CUDA out of memory."), raised(None, "ValueError", "bad"), WorldSize(2))
    assert taken.report.messages == ("CUDA out of memory.",)
    assert [str(ending) for ending in taken.report.endings] == ["ValueError: bad"]


def test_checkpoints_start_up_and_stacks():
    stack = Stack("MainThread", (Frame("train.py", 3, "main"),), main=True)
    taken = report(
        CheckpointPassed(Speaker(0), 9, "wrap"),
        Waiting(Speaker(1), "init_process_group", timeout_s=60),
        StacksSeen(Speaker(1), (stack,)),
    )
    assert [event.title for event in taken.ranks[0].history] == ["checkpoint"]
    assert [(event.title, event.state) for event in taken.ranks[1].history] == [("init_process_group", "open")]
    assert taken.ranks[1].main_stack == stack and taken.ranks[1].unrecorded


def test_the_calls_of_a_rank_belong_to_its_main_thread():
    stack = Stack("MainThread", (), native_id=12, main=True)
    assert report(waits(0, 57), StacksSeen(Speaker(0), (stack,))).ranks[0].calls[0].thread == 12


def test_what_is_not_known_is_kept_once():
    assert report(Unknown("The lines."), Unknown("The lines."), WorldSize(1)).report.unknown == ("The lines.",)


def test_what_was_read_is_saved(tmp_path):
    taken = report(waits(0, 57), progress(1, 56, 56), died(2, -9), Message(NOBODY, "bad"))
    taken.save(tmp_path / "a.ddpnb")
    from ddpnb.recording.recording_file import load

    assert load(tmp_path / "a.ddpnb") == taken


def test_one_process_id_on_two_addresses_is_two_processes():
    """A host may be named in one file and be an address in another; two addresses are two hosts."""
    known = Identity(Speaker(62, 833, "10.0.0.1"))
    for host, rank in (("10.0.0.1", 62), ("10.0.0.2", None), ("", 62), ("node1", 62)):
        recording = report(known, Ended(Speaker(None, 833, host), Ending("died", -9)))
        assert (recording.ranks[62].ending is not None) == (rank == 62), host


def test_a_time_out_of_a_rank_that_no_file_names():
    call = CallSeen(
        Speaker(), GroupName("1", rank=1), 199, signature("reduce_scatter_tensor"), CallState.WAITING, timeout_s=600.0
    )
    found = diagnosis(call)
    assert (found.outcome, found.findings[0].code, found.findings[0].culprits) == ("hang", "DDP301", ())
    assert "reduce_scatter_tensor #199" in found.findings[0].summary
    assert found.findings[0].certainty == "likely"


def test_a_kill_for_memory_that_two_programs_report_is_one():
    said = (
        Ended(Speaker(0), Ending("died", -9, message="Out Of Memory")),
        Message(NOBODY, "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0."),
    )
    assert report(*said).host["oom_kills"] == 1
    assert report(said[1]).host["oom_kills"] == 1
    assert report(said[0], Ended(Speaker(1), said[0].ending)).host["oom_kills"] == 2
