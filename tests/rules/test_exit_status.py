"""Failures that the exit status hides."""

from __future__ import annotations

from ddpnb.model.calls import CallState
from ddpnb.rules import exit_status
from tests.rules.recordings import line, recorded, the_finding

LEFT = line(40)


def printed(last="ValueError: no loss", after=""):
    return f'Traceback (most recent call last):\n  File "/home/user/train.py", line 12, in main\n    step()\n{last}\n{after}'


def test_a_failure_that_was_printed_and_forgotten():
    taken = recorded(lambda r: (r.writes(printed()) if r.rank == 2 else r).finishes())
    found = the_finding(exit_status.find, taken)
    assert (found.code, found.culprits, found.where) == ("DDP701", (2,), ((2, line(12)),))
    assert "ValueError" in found.summary


def test_the_line_is_the_users_where_a_hook_of_ours_lies_between():
    hook = '  File "/opt/ddpnb/recorder/phases.py", line 139, in new_group\n    original()\nValueError: no loss'
    taken = recorded(lambda r: r.writes(printed(last=hook)).finishes())
    assert the_finding(exit_status.find, taken).where == tuple((rank, line(12)) for rank in range(4))


def test_a_traceback_from_which_the_script_went_on():
    taken = recorded(lambda r: r.writes(printed(after="epoch 2\nepoch 3\ndone\n")).finishes())
    assert exit_status.find(taken) is None


def leaves(rank, at=LEFT):
    return rank.event("process ends", at).dies(0)


def test_all_leave_by_force_and_one_of_them_too_early():
    def make(rank):
        if rank.rank == 1:
            return leaves(rank.calls("all_reduce", line(3)))
        return leaves(rank.calls("all_reduce", line(3)).calls("all_reduce", line(3), state=CallState.ISSUED))

    found = the_finding(exit_status.find, recorded(make))
    assert (found.code, found.culprits, found.where) == ("DDP701", (1,), ((1, LEFT),))


def test_a_code_of_which_nothing_is_left():
    taken = recorded(lambda r: r.exits(0, LEFT, 256) if r.rank == 1 else r.finishes())
    found = the_finding(exit_status.find, taken)
    assert (found.code, found.severity, found.culprits, found.where) == ("DDP701", "warning", (1,), ((1, LEFT),))
    assert "status 0 although the code was 256" in found.summary
    assert exit_status.find(recorded(lambda r: r.exits(0, LEFT))) is None


def test_all_leave_by_force_after_the_same_calls():
    assert exit_status.find(recorded(lambda r: leaves(r.calls("all_reduce", line(3))))) is None
