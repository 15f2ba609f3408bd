"""What is said of ranks that wait, where the files show no more."""

from __future__ import annotations

import pytest

from ddpnb.recording.ending import UNKNOWN_STATUS, Ending
from ddpnb.reports.facts import Ended, GroupName, Members, Speaker, Waiting
from tests.reports.told import diagnosis, died, raised, waits

_CLOSED = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.7]:57000"


@pytest.mark.parametrize(
    ("facts", "size", "all_called"),
    [
        ((waits(0, 57),), 0, False),
        ((waits(0, 57), waits(1, 57)), 0, False),  # there may be a rank 2
        ((waits(0, 57), waits(1, 57)), 2, True),
        ((waits(0, 0), waits(2, 0)), 4, False),  # without a number, as old versions write it
        ((waits(0, 57, group=GroupName("7")), waits(1, 57, group=GroupName("7"))), 4, False),
        (
            (
                Members(GroupName("7", ranks=(0, 1))),
                waits(0, 57, group=GroupName("7")),
                waits(1, 57, group=GroupName("7")),
            ),
            4,
            True,
        ),
    ],
)
def test_all_ranks_have_made_a_call_only_where_all_ranks_are_known(facts, size, all_called):
    (finding,) = diagnosis(*facts, size=size).findings
    assert finding.code == "DDP318"
    assert ("all of its ranks have called" in finding.summary) == all_called
    assert "#0" not in finding.summary
    assert ("Collect the output of all ranks" in finding.remedy) != all_called


def test_a_call_that_no_file_names():
    found = diagnosis(Waiting(Speaker(4), "call"))
    assert (found.outcome, found.findings[0].code, found.findings[0].waiting) == ("hang", "DDP318", (4,))
    found = diagnosis(Waiting(Speaker(1), "store"))
    assert (found.findings[0].code, found.findings[0].certainty) == ("DDP311", "likely")
    assert diagnosis(Waiting(Speaker(1), "store"), waits(1, 57), waits(2, 57), size=3).findings[0].code == "DDP301"


def test_a_lost_connection_is_not_taken_for_the_cause():
    (finding,) = diagnosis(
        *(waits(rank, 78) for rank in (1, 2, 3)), raised(0, "RuntimeError", _CLOSED), size=4
    ).findings
    assert (finding.code, finding.culprits, finding.certainty) == ("DDP301", (0,), "likely")
    assert any("Rank 0 lost its connection" in line for line in finding.evidence)
    (finding,) = diagnosis(raised(None, "RuntimeError", _CLOSED)).findings
    assert (finding.code, finding.certainty) == ("DDP311", "likely")


def test_an_exit_status_is_not_taken_for_a_call_of_sys_exit():
    exited = [Ended(Speaker(rank), Ending("exited", 1)) for rank in (0, 1)]
    (finding,) = diagnosis(*exited, raised(None, "RuntimeError", "invalid argument")).findings
    assert finding.summary == "Ranks 0 and 1 exited with status 1."
    assert finding.evidence[-1].endswith("raised RuntimeError: invalid argument.")
    assert "sys.exit" not in str(finding)


def test_an_abort_need_not_be_a_crash():
    (finding,) = diagnosis(died(1, -6)).findings
    assert "watchdog" in finding.remedy


def test_what_a_launcher_stopped_is_not_the_cause():
    stopped = Ended(Speaker(None, 188), Ending("died", -15))
    assert diagnosis(stopped, waits(0, 57)).findings[0].code == "DDP318"
    (finding,) = diagnosis(stopped).findings
    assert finding.summary.startswith("A launcher ended its processes")


def test_the_end_of_a_process_without_a_status():
    ended = Ending("ended", UNKNOWN_STATUS)
    (finding,) = diagnosis(Ended(Speaker(1, 834), ended)).findings
    assert finding.summary == "Rank 1 ended (its exit status is not known)."
    # Its time-out ended it.
    found = diagnosis(Ended(Speaker(1, 834), ended), waits(1, 57), waits(2, 57), size=3)
    assert (found.outcome, found.findings[0].code) == ("hang", "DDP301")


def test_one_rank_alone_accuses_no_other_where_the_number_of_ranks_is_not_known():
    (finding,) = diagnosis(waits(1, 57)).findings
    assert (finding.code, finding.culprits, finding.waiting) == ("DDP318", (), (1,))
    assert "Collect the output of all ranks" in finding.remedy


def test_the_abort_of_an_unknown_process_follows_from_a_time_out():
    abort = Ended(Speaker(None, 1159), Ending("died", -6, message="pid 1159 died, exit code: -6"))
    (finding,) = diagnosis(waits(0, 57), abort).findings
    assert (finding.code, finding.waiting) == ("DDP318", (0,))
    (finding,) = diagnosis(abort).findings
    assert finding.code == "DDP311"


def test_a_lost_connection_is_not_the_fault_of_the_rank_that_lost_it():
    (finding,) = diagnosis(raised(6, "RuntimeError", _CLOSED)).findings
    assert (finding.code, finding.culprits, finding.waiting, finding.certainty) == ("DDP311", (), (6,), "likely")
