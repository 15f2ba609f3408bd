"""Whether live ranks give the finding of the recording."""

from dataclasses import replace

from ddpnb.diagnosis.diagnose import diagnose
from ddpnb.reenactment.agreement import compare
from ddpnb.reenactment.plan import plan_of
from tests.reenactment import programs
from tests.reenactment.programs import recording_of


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


def test_another_call_is_another_result():
    plan, finding = planned(programs.never_called)
    call = replace(finding.collective, seq=9)
    assert "the live ranks in all_reduce #9" in compare(plan, replace(finding, collective=call)).differences[0]


def test_no_finding_at_all_differs():
    plan, _ = planned(programs.never_called)
    assert "the live ranks show nothing" in compare(plan, None).differences[0]
