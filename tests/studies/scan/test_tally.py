"""How often each rank made each call, from Recordings written by hand."""

from __future__ import annotations

from dataclasses import replace

from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.studies.scan.tally import tally
from tests.rules.recordings import FILE, Rank, line, record


def test_calls_are_counted_by_rank_and_place():
    found = tally(
        record(
            Rank(0).calls("all_reduce", line(3)).calls("all_reduce", line(3)).waits("barrier", line(5)),
            Rank(1).calls("all_reduce", line(3)).calls("all_reduce", line(3)).finishes(),
        )
    )
    assert found.counts == {0: {(FILE, 3): 2, (FILE, 5): 1}, 1: {(FILE, 3): 2}}
    assert found.members == {(FILE, 3): {0, 1}, (FILE, 5): {0, 1}}
    assert found.whole


def last(recording: Recording, rank: int, count: int) -> RankRecord:
    """The rank as it is when its box holds no more than the last calls."""
    mine = recording.ranks[rank]
    return replace(mine, calls=mine.calls[-count:], forgotten=len(mine.calls) - count)


def test_of_a_long_run_only_what_all_ranks_still_know_is_compared():
    """Rank 0 remembers its last three calls, rank 1 its last two: the last two are told apart."""
    ranks = [Rank(0), Rank(1)]
    for number in range(6):
        ranks = [rank.calls("all_reduce", line(3 + number)) for rank in ranks]
    whole = record(*ranks)
    found = tally(replace(whole, ranks={0: last(whole, 0, 3), 1: last(whole, 1, 2)}))
    assert found.counts == {0: {(FILE, 7): 1, (FILE, 8): 1}, 1: {(FILE, 7): 1, (FILE, 8): 1}}
    assert not found.whole


def test_a_rank_that_forgot_all_of_a_group_makes_it_incomparable():
    whole = record(Rank(0).calls("all_reduce", line(3)), Rank(1).calls("all_reduce", line(3)))
    found = tally(replace(whole, ranks={0: whole.ranks[0], 1: replace(whole.ranks[1], calls=(), forgotten=9)}))
    assert found.counts == {0: {}, 1: {}}
