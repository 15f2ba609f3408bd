"""The verdict on a run without findings: counts of what was recorded, and nothing of what was not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.findings import Diagnosis
from ddpnb.render import verdict
from tests.rules.recordings import recorded

OK = Diagnosis("ok", settled=True, exit_codes={0: 0, 1: 0})
LOOKS = 4


def of(make, diagnosis=OK):
    return verdict.line(diagnosis, recorded(make, 2))


def calls(rank, number):
    for _ in range(number):
        rank.calls("all_reduce")
    return rank


def trained(rank, odd=None):
    calls(rank, 3).wraps()
    for step in range(1, LOOKS):
        rank.sample("updated", odd=odd if rank.rank else None, step=step)
    return rank.finishes()


def test_a_run_with_a_model():
    assert of(trained) == f"ok: 2 ranks, 3 collectives on each, replicas equal at {LOOKS} looks"


def test_replicas_that_differ_are_not_called_equal():
    assert "replicas" not in of(lambda rank: trained(rank, {"fc.weight": 9}))


def test_replicas_of_which_one_was_never_looked_at():
    assert "replicas" not in of(lambda rank: trained(rank) if rank.rank else calls(rank, 3).finishes())


def test_no_process_group():
    assert of(lambda rank: rank.absent().finishes()) == verdict.NO_GROUP


@pytest.mark.parametrize("field", ["forgotten", "events_forgotten"])
def test_what_is_no_longer_known_may_have_been_a_process_group(field):
    recording = recorded(lambda rank: rank.absent().finishes(), 2)
    ranks = {rank: replace(record, **{field: 7}) for rank, record in recording.ranks.items()}
    assert verdict.line(OK, replace(recording, ranks=ranks)) != verdict.NO_GROUP


@pytest.mark.parametrize(
    ("numbers", "says"), [((1, 1), "1 collective on each"), ((1, 1200), "1 to 1,200 collectives on each")]
)
def test_calls_by_rank(numbers, says):
    assert of(lambda rank: calls(rank, numbers[rank.rank]).finishes()) == f"ok: 2 ranks, {says}"


def test_sends_are_calls_and_no_collectives():
    recording = recorded(lambda rank: calls(rank, 2).finishes(), 2)
    ranks = {
        number: replace(
            record, calls=tuple(replace(c, signature=replace(c.signature, op="send")) for c in record.calls)
        )
        for number, record in recording.ranks.items()
    }
    assert verdict.line(OK, replace(recording, ranks=ranks)) == "ok: 2 ranks, 2 calls on each"


def test_calls_that_were_not_recorded_are_not_counted():
    recording = recorded(lambda rank: calls(rank, 2).finishes(), 2)
    ranks = {**recording.ranks, 1: replace(recording.ranks[1], unrecorded=True)}
    assert verdict.line(OK, replace(recording, ranks=ranks)) == "ok: 2 ranks"


def test_a_command_that_succeeded_with_ranks_that_failed():
    said = of(lambda rank: calls(rank, 1).finishes(), Diagnosis("ok", settled=True, exit_codes={0: 0, 1: 1}))
    assert said == "ok: the command succeeded (2 ranks, 1 collective on each)"
