"""Failures that the exit status hides."""

from __future__ import annotations

from ddpnb.recording.calls import CallState
from tests.rules.recordings import asked, line, recorded

LEFT = line(40)


def printed(last="ValueError: no loss", after=""):
    return f'Traceback (most recent call last):\n  File "/home/user/train.py", line 12, in main\n    step()\n{last}\n{after}'


def test_a_failure_that_was_printed_and_forgotten():
    taken = recorded(lambda r: (r.writes(printed()) if r.rank == 2 else r).finishes())
    (found,) = asked("DDP701", taken)
    assert (found.culprits, found.where) == ((2,), ((2, line(12)),))
    assert "ValueError" in found.summary


def test_what_python_ignores_at_exit_is_no_failure():
    ignored = "Exception ignored in: <function _DeleteDummyThreadOnDel.__del__ at 0x7f>\n" + printed(
        "TypeError: no lock"
    )
    assert not asked("DDP701", recorded(lambda r: r.writes(ignored).finishes()))
    (found,) = asked("DDP701", recorded(lambda r: r.writes(printed("ValueError: no loss", ignored)).finishes()))
    assert "ValueError" in found.summary


def test_the_line_is_the_users_where_a_hook_of_ours_lies_between():
    hook = '  File "/opt/ddpnb/recorder/collectives/phases.py", line 139, in new_group\n    original()\nValueError: no loss'
    taken = recorded(lambda r: r.writes(printed(last=hook)).finishes())
    assert asked("DDP701", taken)[0].where == tuple((rank, line(12)) for rank in range(4))


def test_a_traceback_from_which_the_script_went_on():
    taken = recorded(lambda r: r.writes(printed(after="epoch 2\nepoch 3\ndone\n")).finishes())
    assert asked("DDP701", taken) == []


def leaves(rank, at=LEFT):
    return rank.event("process ends", at).dies(0)


def test_all_leave_by_force_and_one_of_them_too_early():
    def make(rank):
        if rank.rank == 1:
            return leaves(rank.calls("all_reduce", line(3)))
        return leaves(rank.calls("all_reduce", line(3)).calls("all_reduce", line(3), state=CallState.ISSUED))

    (found,) = asked("DDP701", recorded(make))
    assert (found.culprits, found.where) == ((1,), ((1, LEFT),))


def test_a_code_of_which_nothing_is_left():
    taken = recorded(lambda r: r.exits(0, LEFT, 256) if r.rank == 1 else r.finishes())
    (found,) = asked("DDP701", taken)
    assert (found.severity, found.culprits, found.where) == ("warning", (1,), ((1, LEFT),))
    assert "status 0 although the code was 256" in found.summary
    assert asked("DDP701", recorded(lambda r: r.exits(0, LEFT))) == []


def test_all_leave_by_force_after_the_same_calls():
    assert asked("DDP701", recorded(lambda r: leaves(r.calls("all_reduce", line(3))))) == []
