"""Whether live ranks give the finding of the recording."""

from dataclasses import replace

from ddpnb.recording.report import Report
from ddpnb.rules.diagnose import diagnose
from ddpnb.studies.reenactment.agreement import compare
from ddpnb.studies.reenactment.planning import plan_of
from tests.rules.recordings import Rank, line, record
from tests.studies.reenactment import programs
from tests.studies.reenactment.programs import recording_of


def planned(kind):
    recording = recording_of(kind)
    return plan_of(recording), diagnose(recording).errors[0]


def test_the_same_finding_agrees():
    assert compare(*planned(programs.never_called)).same


def test_another_finding_is_named():
    plan, _ = planned(programs.never_called)
    _, other = planned(programs.other_operation)
    agreement = compare(plan, other)
    assert not agreement.same
    assert "DDP301 collective-missing; the live ranks show DDP302 op-mismatch" in agreement.differences[0]


def test_other_ranks_are_another_result():
    plan, finding = planned(programs.never_called)
    agreement = compare(plan, replace(finding, culprits=(2,)))
    assert agreement.differences == ("At fault in the recording: rank 1; of the live ranks: rank 2.",)


def test_ranks_of_which_nothing_is_known_are_nobodys_fault_in_the_recording():
    recording = record(Rank(3, 4).waits("all_reduce", line(3)), world_size=4)
    plan = plan_of(replace(recording, report=Report(waited_s=60)))
    assert [part.how for part in plan.parts] == ["unknown", "unknown", "unknown", "blocked"]
    assert compare(plan, replace(plan.expected, culprits=(0, 1, 2))).same
    assert not compare(plan, replace(plan.expected, culprits=(3,))).same


def test_another_call_is_another_result():
    plan, finding = planned(programs.never_called)
    call = replace(finding.collective, seq=9)
    assert "the live ranks in all_reduce #9" in compare(plan, replace(finding, collective=call)).differences[0]


def test_no_finding_at_all_differs():
    plan, _ = planned(programs.never_called)
    assert "the live ranks show nothing" in compare(plan, None).differences[0]
