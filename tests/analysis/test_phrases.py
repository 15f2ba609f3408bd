"""Words that several findings share."""

from __future__ import annotations

from dataclasses import replace

from ddpnb.analysis.phrases import guess, undecided
from tests.analysis.recordings import Rank, Script, record

CALLER = Script(
    """
    def main(rank):
        if rank != 1:  # decides
            reduce()  # calls
        if rank:
            if late:
                reduce()  # twice
    """
)
CALLED = Script("def reduce():\n    dist.all_reduce(x)  # waits", "/home/me/reduce.py")


def test_the_only_statement_that_can_decide_is_a_guess_and_says_so():
    recording = record(Rank(0), Rank(1), script=CALLER)
    recording = replace(recording, sources={**recording.sources, CALLED.file: CALLED.text})
    text = f"Possibly `if rank != 1` at {CALLER.file}:{CALLER.line('decides')} decides: inferred from the source, not observed."
    assert guess(recording, (CALLER.at("calls"), CALLED.at("waits", "reduce"))) == [text]
    assert guess(recording, (CALLER.at("calls"),)) == [text]


def test_of_several_candidates_none_is_chosen():
    recording = record(Rank(0), Rank(1), script=CALLER)
    assert guess(recording, (CALLER.at("twice"),)) == []
    assert guess(recording, ()) == []


def test_a_tie_is_told_with_its_sides():
    assert undecided(()) == []
    assert undecided(((0, 2), (1,))) == [
        "Nothing that was recorded tells which side is at fault: ranks 0 and 2 or rank 1."
    ]
    assert len(undecided([(rank,) for rank in range(1000)])[0]) < 300
