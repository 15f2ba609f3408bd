"""The starts of process groups in a command: which hang, and after which the command has continued."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from ddpnb.recording.ending import Ending
from ddpnb.recording.findings import Diagnosis
from ddpnb.world.group_watch import GroupWatch


@dataclass
class Processes:
    """Two ranks, some of which live."""

    living: set[int] = field(default_factory=lambda: {0, 1})

    def found(self):
        return {rank: f"rank {rank}" for rank in (0, 1)}

    def alive(self, rank):
        return rank in self.living


def watch(diagnosis, endings=None, living=(0, 1), patience=60.0):
    group = GroupWatch(Processes(set(living)), patience, end_after_patience=False, say=print)
    known = threading.Event()
    known.set()
    observer = SimpleNamespace(ending=(endings or {}).get)
    group.monitor = SimpleNamespace(
        diagnosis=diagnosis, outcome=diagnosis.outcome, known=known, observer=observer, ranks=[0, 1]
    )
    return group


HANG = Diagnosis("hang", settled=True)


def test_ranks_that_can_never_continue():
    assert watch(HANG).is_stuck
    assert not watch(Diagnosis("hang")).is_stuck  # it is not settled
    assert not watch(Diagnosis("crash", settled=True)).is_stuck


def test_ranks_that_somebody_has_ended_while_they_were_examined():
    """The end of an attempt comes at any time: then nobody has to end it."""
    assert not watch(HANG, living=()).is_stuck


@pytest.mark.parametrize(("patience", "stuck"), [(60.0, False), (0.0, True)])
def test_a_launcher_that_sees_a_rank_fail_has_time_to_end_the_others(patience, stuck):
    group = watch(HANG, {1: Ending("exited", 1)}, living={0}, patience=patience)
    assert [group.is_stuck for _ in range(3)][-1] == stuck
