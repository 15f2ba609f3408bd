"""Calls that were matched with the next ones of ranks which had skipped one of the same signature."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.diagnosis.hangs.mismatch import explain, first_mismatch
from ddpnb.model.calls import CallState
from tests.diagnosis.recordings import Rank, Script, record

SCRIPT = Script("""
    def main():
        for batch in loader:
            all_reduce(gradients)                       # step
        compute()                                       # metrics

    def compute():
        recall = reduced(fraud) if any(fraud) else 0    # recall
        loss = reduced(losses)                          # loss

    def reduced(value):
        all_reduce(value)                               # reduce
""")
STEP = SCRIPT.at("step")


def reduced(mark):
    return replace(SCRIPT.at("reduce", "reduced"), via=f"{SCRIPT.file}:{SCRIPT.line(mark)}")


def evaluates(rank: int, world: int, skips: bool) -> Rank:
    made = Rank(rank, world).calls("all_reduce", STEP, shape=(9,))
    made.runs(SCRIPT, "metrics compute:recall compute:loss reduced:reduce")
    if not skips:
        made.calls("all_reduce", reduced("recall")).calls("all_reduce", reduced("loss"), state=CallState.FENCED)
    else:
        made.calls("all_reduce", reduced("loss")).calls("all_reduce", STEP, shape=(9,), state=CallState.FENCED)
    return made


def finding(world: int, skipping: tuple[int, ...]):
    recording = record(*(evaluates(r, world, r in skipping) for r in range(world)), script=SCRIPT)
    odd = first_mismatch(recording)
    assert odd is not None and odd.collective_seq_id == 3
    return explain(recording, odd)


@pytest.mark.parametrize("skipping", [(2,), (0,)])
def test_ranks_that_skipped_a_call_are_where_the_others_come_next(skipping):
    found = finding(3, skipping)
    assert (found.code, found.culprits, found.certainty) == ("DDP301", skipping, "likely")
    assert (found.collective.seq, found.collective.site) == (2, reduced("recall"))
    assert found.summary.startswith(f"Rank {skipping[0]} did not make the all_reduce #2 that ranks ")
    lines = [site.line for rank, site in found.where if rank in skipping]
    assert lines == [SCRIPT.line("recall"), SCRIPT.line("reduce"), SCRIPT.line("step")]
    assert (
        f"Rank {skipping[0]} ran {SCRIPT.file}:{SCRIPT.line('recall')} and did not make the call there."
        in found.evidence
    )


def test_those_who_made_it_alone_are_named_if_they_are_fewer():
    found = finding(4, (0, 1, 3))
    assert (found.code, found.culprits, found.waiting) == ("DDP301", (2,), (0, 1, 3))


def test_of_two_ranks_either_may_be_wrong():
    found = finding(2, (1,))
    assert (found.code, found.culprits, found.sides) == ("DDP301", (), ((0,), (1,)))
    assert "No recorded fact tells which side is at fault: rank 0 or rank 1." in found.evidence


def test_calls_from_the_same_places_are_not_shifted():
    ranks = [evaluates(r, 2, skips=False) for r in range(2)]
    ranks[0].calls("all_reduce", STEP, shape=(9,))
    ranks[1].calls("all_reduce", STEP, shape=(8,))
    recording = record(*ranks, script=SCRIPT)
    odd = first_mismatch(recording)
    assert odd is not None and explain(recording, odd).code == "DDP303"


def test_a_line_that_ranks_ran_only_earlier_is_not_said_to_have_been_run_without_the_call():
    ranks = []
    for number in range(3):
        rank = (
            Rank(number, 3).runs(SCRIPT, "metrics compute:recall reduced:reduce").calls("all_reduce", reduced("recall"))
        )
        rank.runs(SCRIPT, f"{'' if number == 2 else 'compute:recall '}compute:loss reduced:reduce")
        if number < 2:
            rank.calls("all_reduce", reduced("recall"))
        rank.calls("all_reduce", reduced("loss"), state=CallState.COMPLETED if number == 2 else CallState.FENCED)
        ranks.append(rank)
    ranks[2].calls("all_reduce", STEP, shape=(9,), state=CallState.FENCED)
    recording = record(*ranks, script=SCRIPT)
    odd = first_mismatch(recording)
    assert odd is not None
    found = explain(recording, odd)
    assert (found.culprits, found.collective.seq) == ((2,), 2)
    assert "did not make the call there" not in str(found.evidence)
