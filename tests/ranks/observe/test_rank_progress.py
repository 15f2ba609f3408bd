"""What is known of a rank that sleeps: one long sleep ends by itself, a loop of sleeps does not."""

from __future__ import annotations

import types

import pytest

from ddpnb.ranks.observe import rank_progress
from ddpnb.ranks.observe.rank_progress import RankProgress, holders
from ddpnb.recorder.files.blackbox import BlackBox
from ddpnb.recording.blackbox import RUN_ACTIVE
from ddpnb.recording.stacks import Frame, Stack
from ddpnb.recording.verbs import Looked

FRAME = Frame("/train.py", 4, "main", True)


def wakes(monkeypatch, tmp_path, looks):
    """What is known at each look: (time, seconds until it wakes or None for no answer, value of its counter)."""
    clock = types.SimpleNamespace(monotonic=lambda: clock.now, now=0.0)
    monkeypatch.setattr(rank_progress, "time", clock)
    rank = RankProgress(str(tmp_path), 0, str(tmp_path / "ending"), "")
    known = []
    for now, left, counter in looks:
        clock.now = now
        frame = Frame(FRAME.file, FRAME.line, FRAME.function, True, {"i": counter})
        rank.stacks = (Stack("MainThread", (frame,), main=True),)
        known.append(rank.process(left if left is None else Looked(wakes_at=now + left), {}).wakes_in_s)
    return known


def test_a_long_sleep_is_known_when_it_is_seen_twice(monkeypatch, tmp_path):
    looks = [(10.0, 30.0, "0"), (12.0, 28.0, "0"), (20.0, 20.0, "0")]
    assert wakes(monkeypatch, tmp_path, looks) == [None, pytest.approx(28.0), pytest.approx(20.0)]


def test_a_loop_of_sleeps_at_one_place_is_none(monkeypatch, tmp_path):
    looks = [(10.0, 3.0, "0"), (12.0, 1.0, "0"), (14.0, 2.0, "0"), (15.5, 0.5, "0"), (17.5, 1.5, "0")]
    assert wakes(monkeypatch, tmp_path, looks) == [None, pytest.approx(1.0), None, None, None]


def test_sleeps_of_a_loop_that_counts_end_with_it(monkeypatch, tmp_path):
    looks = [(10.0, 3.0, "0"), (12.0, 1.0, "0"), (14.0, 2.0, "1"), (15.5, 0.5, "1")]
    assert wakes(monkeypatch, tmp_path, looks) == [None, pytest.approx(1.0), None, pytest.approx(0.5)]


def test_a_sleep_is_the_same_although_the_rank_did_not_answer_in_between(monkeypatch, tmp_path):
    looks = [(10.0, 30.0, "0"), (14.0, None, "0"), (20.0, 20.0, "0"), (39.0, None, "0"), (41.0, None, "0")]
    expected = [None, pytest.approx(26.0), pytest.approx(20.0), pytest.approx(1.0), None]
    assert wakes(monkeypatch, tmp_path, looks) == expected


def test_a_sleep_is_the_same_however_late_its_answer_is_read(monkeypatch, tmp_path):
    clock = types.SimpleNamespace(monotonic=lambda: clock.now, now=0.0)
    monkeypatch.setattr(rank_progress, "time", clock)
    rank = RankProgress(str(tmp_path), 0, str(tmp_path / "ending"), "")
    known = []
    for clock.now in (10.0, 12.3, 12.6, 13.9):
        known.append(rank.process(Looked(wakes_at=14.0), {}).wakes_in_s)
    assert known == [None, *map(pytest.approx, (1.7, 1.4, 0.1))]


def test_the_processes_that_hold_a_lock_are_ranks_of_the_same_machine():
    answers = {
        0: Looked(machine="a", pid=7),
        1: Looked(machine="a", pid=8, holders=(7, 9)),
        2: Looked(machine="b", pid=9, holders=(7,)),
    }
    assert [holders(rank, answers) for rank in range(4)] == [(), (0, -1), (-1,), ()]


def test_the_program_by_which_a_rank_replaces_itself_begins_a_box_another_process_does_not(monkeypatch, tmp_path):
    path = str(tmp_path / "rank0.box")
    rank = RankProgress(str(tmp_path), 0, str(tmp_path / "ending"), "")
    BlackBox(path, 0).set_run(1, RUN_ACTIVE)
    assert rank.status.run == 1
    BlackBox(path, 0).set_run(2, RUN_ACTIVE)  # by exec, of the same process
    assert rank.status.run == 2
    monkeypatch.setattr("os.getpid", lambda: 7)
    BlackBox(path, 0).set_run(3, RUN_ACTIVE)  # of a rank that was started in its place
    assert rank.status.run == 2
