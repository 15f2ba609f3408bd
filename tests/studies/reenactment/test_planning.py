"""The plan of a re-enactment."""

import time

import pytest

from ddpnb.errors import UsageError
from ddpnb.recording.calls import Signature
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.report import Report
from ddpnb.studies.reenactment.planning import plan_of
from tests.rules.recordings import Rank, line, record, recorded
from tests.studies.reenactment import programs
from tests.studies.reenactment.programs import recording_of


def part(plan, rank):
    return plan.parts[rank]


def test_a_small_job_is_re_enacted_whole():
    plan = plan_of(recording_of(programs.never_called))
    assert (plan.size, plan.world_size) == (4, 4)
    assert [one.how for one in plan.parts] == ["blocked", "left", "blocked", "blocked"]
    assert plan.expected.code == "DDP301"


def test_a_rank_that_does_not_occur_makes_no_call():
    recording = record(*(Rank(rank).waits("all_reduce", line(3)) for rank in (0, 2)), world_size=3)
    plan = plan_of(recording)
    assert part(plan, 1).how == "unknown"
    assert not part(plan, 1).steps


def test_a_large_job_is_folded_onto_its_kinds():
    recording = recorded(programs.tensor_and_data_parallel, 512)
    began = time.monotonic()
    plan = plan_of(recording)
    assert time.monotonic() - began < 5
    assert plan.size <= 8
    assert plan.world_size == 512
    originals = [one.original for one in plan.parts]
    assert 17 in originals
    assert sum(16 <= rank < 24 and rank != 17 for rank in originals) == 2  # the rest of its group waits for it
    tensor, data = (next(one for one in plan.groups if one.group.label == name) for name in ("mesh_tp", "mesh_dp"))
    culprit = originals.index(17)
    assert culprit in tensor.ranks
    assert len(tensor.ranks) == 3
    assert len(data.ranks) >= 2
    largest = max((one.stands_for for one in plan.parts), key=len)
    assert len(largest) == 504
    assert sum(one.stands_for == largest for one in plan.parts) == 2  # a majority stays one


def test_ranks_of_a_folded_job_wait_for_one_that_is_there():
    plan = plan_of(recorded(programs.tensor_and_data_parallel, 512))
    for one in plan.parts:
        if one.how == "blocked":
            step = one.steps[-1]
            others = [plan.parts[rank] for rank in plan.groups[step.group].ranks]
            assert any((step.group, step.seq) not in {(s.group, s.seq) for s in other.steps} for other in others)


def test_the_number_of_ranks_is_given():
    assert plan_of(recorded(programs.tensor_and_data_parallel, 512), 4).size == 4


def test_sizes_stay_equal_and_different():
    plan = plan_of(recording_of(programs.other_shape))
    sizes = [one.steps[-1].given.tensor.elements for one in plan.parts]
    assert sizes[0] == sizes[1] == sizes[2] != sizes[3]
    assert max(sizes) < 2048
    assert any("smaller" in note for note in plan.notes)


def test_types_that_gloo_does_not_move_get_others():
    plan = plan_of(recording_of(programs.other_dtype))
    types = [one.steps[-1].given.tensor.dtype for one in plan.parts]
    assert types[0] != types[1] == types[2] == types[3]
    assert any("stands for int16" in note for note in plan.notes)


def test_long_runs_keep_what_all_made_last_and_their_numbers():
    def make(me):
        for _ in range(900):
            me.calls("all_reduce", line(3))
        return me.finishes() if me.rank == 1 else me.waits("all_reduce", line(4))

    plan = plan_of(recorded(make))
    assert [len(one.steps) for one in plan.parts] == [4, 3, 4, 4]
    assert plan.numbers[recorded(make).ranks[0].calls[0].group.key] == {898: 1, 899: 2, 900: 3, 901: 4}


def test_ranks_thousands_of_calls_apart_meet_in_the_same_ones():
    def make(me):
        for _ in range(900 if me.rank == 0 else 10):
            me.calls("broadcast", line(3), root=0)
        return me.waits("barrier", line(5)) if me.rank == 0 else me.finishes()

    plan = plan_of(recorded(make, 2))
    steps = [{(one.seq, one.given.op) for one in one.steps} for one in plan.parts]
    assert len(steps[0]) < 40
    assert steps[1] < steps[0]
    assert part(plan, 0).steps[-1].given.op == "barrier"


def test_earlier_calls_that_a_report_does_not_show_follow_from_the_others():
    recording = record(
        Rank(0, 2).waits("all_reduce", line(3), seq=58),
        Rank(1, 2).calls("broadcast", line(2), root=0, seq=57).finishes(),
    )
    plan = plan_of(recording)
    assert [[step.given.op for step in one.steps] for one in plan.parts] == [["broadcast", "all_reduce"], ["broadcast"]]


def test_a_root_is_the_live_rank_that_stands_for_it():
    def make(me):
        return me.waits("broadcast", line(3), root=9) if me.rank != 9 else me.finishes()

    plan = plan_of(recorded(make, 12))
    root = next(one.rank for one in plan.parts if one.original == 9)
    assert {one.steps[-1].root for one in plan.parts if one.steps} == {root}


def test_a_send_that_waits_is_large_on_both_sides():
    def make(me):
        if me.rank == 0:
            return me.calls("send", line(3), peer=1, state=programs.CallState.WAITING)
        return me.finishes()

    (step,) = plan_of(recorded(make, 2)).parts[0].steps
    assert step.given.tensor.elements > 1_000_000
    assert step.peer == 1


def test_what_a_report_leaves_open_of_a_call_follows_from_the_others():
    unknown = Signature("?", agreed="?")
    ranks = record(
        Rank(0, 3).waits("all_reduce", line(3), seq=57),
        Rank(1, 3).waits("reduce", line(4), seq=0, root=0),
        Rank(2, 3).waits("?", line(3), seq=57, signature=unknown),
    ).ranks
    plan = plan_of(Recording(3, ranks, report=Report(waited_s=60)))
    assert [(one.steps[-1].given.op, one.steps[-1].seq) for one in plan.parts] == [
        ("all_reduce", 1),
        ("reduce", 1),
        ("all_reduce", 1),
    ]


def test_what_calls_cannot_show_is_said():
    def make(me):
        return me.waits("all_reduce", line(3))

    plan = plan_of(recorded(make, 2))
    report = Recording(2, recorded(make, 2).ranks, report=Report(waited_s=60))
    assert not plan.left_out
    assert any("network" in text for text in plan_of(report).left_out)


def test_nothing_to_re_enact_is_a_usage_error():
    with pytest.raises(UsageError, match="nothing to re-enact"):
        plan_of(Recording(1, {0: RankRecord(0)}))
