"""Time accounts of boxes packed by hand: which run, how often, and what happens when they fail."""

from __future__ import annotations

import os

import pytest

from ddpnb.ranks.observe import time_ledger
from ddpnb.ranks.observe.time_ledger import TimeLedger
from ddpnb.recording import blackbox as layout
from ddpnb.recording.calls import CallState
from tests.recording.test_news import MarkedBox

MS = 1_000_000


def box(entered: int, done: int) -> MarkedBox:
    """A rank of two that made one collective."""
    made = MarkedBox()
    layout.IDENTITY.pack_into(made.memory, 0, layout.MAGIC, 1, 0, os.getpid(), 99)
    group = made.string({"ranks": [0, 1], "ordinal": 0})
    signature = made.string({"op": "all_reduce", "device": "cpu"})
    site = made.string({"file": "train.py", "line": 57, "function": "main"})
    made.call(group=group, seq=1, signature=signature, site=site, thread=7, entered=entered * MS, done=done * MS)
    return made


def unknown(*_):
    """How long a rank has waited for a core."""


@pytest.fixture
def readers():
    return {0: box(1000, 1060).reader, 1: box(1050, 1060).reader}


def test_an_account_of_what_lies_in_the_boxes(readers):
    kept = TimeLedger(1, unknown)
    kept.update(readers, {})
    kept.update(readers, {}, now=True)
    found = kept.account(1060 * MS)
    assert [round(rank.parts.waiting, 6) for rank in found.ranks] == [0.05, 0]
    assert found.stragglers[0].rank == 1


@pytest.mark.parametrize("run", [0, 2])
def test_what_belongs_to_another_run_is_left_out(readers, run):
    kept = TimeLedger(run, unknown)
    kept.update(readers, {})
    assert kept.account(1060 * MS).parts.total == 0


def test_looks_that_take_long_come_more_rarely(monkeypatch):
    monkeypatch.setattr(time_ledger, "_PAUSE", 1e9)
    first, second = box(1000, 0), box(1050, 1060)
    first.memory[layout.CALLS_AT + layout.CALL_STATE_AT] = CallState.WAITING
    readers = {0: first.reader, 1: second.reader}
    kept = TimeLedger(1, unknown)
    kept.update(readers, {})
    done = layout.CALLS_AT + layout.CALL_DONE_AT
    first.memory[done : done + 8] = (1060 * MS).to_bytes(8, "little")
    first.memory[layout.CALLS_AT + layout.CALL_STATE_AT] = CallState.COMPLETED
    kept.update(readers, {0: 1})
    assert kept.account(5000 * MS).ranks[0].wall_s == pytest.approx(4)  # it still looks as if it waited
    kept.update(readers, {0: 1061 * MS, 1: 1061 * MS})
    assert kept.account(5000 * MS).ranks[0].wall_s == pytest.approx(0.061)


def test_a_failure_ends_the_account_and_is_reported(readers, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no more ink")

    kept = TimeLedger(1, unknown)
    monkeypatch.setattr(kept._ledger, "take", fail)
    kept.update(readers, {})
    kept.update(readers, {})
    assert any("no more ink" in note for note in kept.account(0).notes)
