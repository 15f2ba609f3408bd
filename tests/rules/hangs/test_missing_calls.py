"""Waits that can never end, in the diagnosis of a whole Recording."""

from __future__ import annotations

import pytest

from tests.rules.recordings import Rank, Script, diagnose, group, line, only_finding, record

# -- DDP301: a rank never makes the call

GUARDED = Script(
    """
    def main(rank):
        all_reduce(x)  # reduce
        if rank == 0:
            barrier()  # barrier
    """
)


def test_a_barrier_on_rank_0_only():
    recording = record(
        Rank(0).calls("all_reduce", GUARDED.at("reduce")).waits("barrier", GUARDED.at("barrier")),
        *(Rank(rank).calls("all_reduce", GUARDED.at("reduce")).finishes() for rank in (1, 2, 3)),
        script=GUARDED,
    )
    found = only_finding(recording)
    assert (found.code, found.culprits, found.waiting) == ("DDP301", (1, 2, 3), (0,))
    assert (found.collective.op, found.collective.seq) == ("barrier", 2)
    assert (0, GUARDED.at("barrier")) in found.where
    assert found.hint is not None and "if rank == 0" in found.hint.reason


def waits(rank, world, at=7):
    return Rank(rank, world).waits("all_reduce", line(at))


@pytest.mark.parametrize(
    ("ranks", "culprit"),
    [
        ([Rank(1).finishes(), *(waits(r, 4) for r in (0, 2, 3))], 1),
        ([waits(0, 2), Rank(1, 2).exits(0)], 1),
        ([Rank(0).finishes(), *(Rank(r).waits("broadcast", line(5), root=0) for r in (1, 2, 3))], 0),
        # Rank 1 has been elsewhere for a second, well within patience; or it computes.
        ([waits(0, 3), Rank(1, 3).idles(1.0, line(4)), Rank(2, 3).finishes()], 2),
        ([waits(0, 3), Rank(1, 3).computes(line(4)), Rank(2, 3).finishes()], 2),
    ],
    ids=["finished", "sys.exit(0)", "the root", "another one is elsewhere", "another one computes"],
)
def test_a_rank_that_ended_is_the_culprit(ranks, culprit):
    found = only_finding(record(*ranks))
    assert (found.code, found.culprits) == ("DDP301", (culprit,))
    assert {one.rank for one in ranks if one.record.in_flight} <= set(found.waiting)


def test_one_asynchronous_call_less():
    """The ranks stand at wait(), not at the calls."""
    ranks = []
    for number in range(4):
        rank = Rank(number).calls("all_reduce", line(5)).calls("all_reduce", line(5))
        ranks.append(rank.finishes() if number == 3 else rank.waits("all_reduce", line(5)).idles(0.5, line(8)))
    found = only_finding(record(*ranks))
    assert found.culprits == (3,)
    assert (0, line(8)) in found.where


def test_a_leaf_that_skips_a_broadcast_is_no_matter_of_those_that_have_it():
    recording = record(Rank(0, 3).calls("broadcast", root=0).computes(), Rank(1, 3).finishes(), Rank(2, 3).computes())
    assert diagnose(recording).findings == ()


def test_who_waits_behind_a_stuck_rank_is_a_waiting_rank():
    """Rank 2 waits for rank 0, which waits for rank 1, which has ended."""
    recording = record(
        Rank(0, 3).waits("barrier", line(5), group=group(0, 1)),
        Rank(1, 3).finishes(),
        Rank(2, 3).waits("all_reduce", line(9), group=group(0, 2)),
    )
    found = only_finding(recording)
    assert (found.culprits, found.waiting) == ((1,), (0, 2))
    assert found.collective.op == "barrier"


def test_two_deadlocks_that_have_nothing_to_do_with_each_other_are_two_findings():
    recording = record(
        Rank(0).waits("barrier", line(5), group=group(0, 1)),
        Rank(1).finishes(),
        Rank(2).waits("barrier", line(5), group=group(2, 3)),
        Rank(3).finishes(),
    )
    found = diagnose(recording).findings
    assert [(one.culprits, one.waiting) for one in found] == [((1,), (0,)), ((3,), (2,))]


# -- DDP313, DDP314: blocked elsewhere, frozen


def test_a_rank_that_is_blocked_elsewhere():
    recording = record(
        Rank(0, 2).waits("all_reduce", line(9)), Rank(1, 2).idles(12.0, line(4), waits_on="a lock (futex)")
    )
    found = only_finding(recording)
    assert (found.code, found.name) == ("DDP313", "blocked-elsewhere")
    assert (found.culprits, found.waiting) == ((1,), (0,))
    assert found.where == ((1, line(4)), (0, line(9)))
    assert "a lock (futex)" in found.summary


def test_a_rank_that_waits_for_a_thread_that_failed():
    odd = Rank(1, 2).event("thread failed", line(30, "decode"), thread="prefetch", exception="ValueError")
    found = only_finding(record(Rank(0, 2).waits("all_reduce", line(9)), odd.idles(12.0, line(4))))
    assert (found.code, found.culprits, found.certainty) == ("DDP313", (1,), "timed")
    assert found.where == ((1, line(4)), (1, line(30, "decode")), (0, line(9)))
    assert f"Before, ValueError at {line(30)} in decode ended the thread 'prefetch' of rank 1." in found.evidence


def test_a_rank_that_holds_the_interpreter_lock_in_native_code():
    silent = Rank(1, 2).idles(12.0, line(4), answered=False, holds_lock=True)
    found = only_finding(record(Rank(0, 2).waits("all_reduce", line(9)), silent))
    assert (found.code, found.culprits) == ("DDP314", (1,))
    assert "holds the GIL" in found.summary and "SIGSTOP" not in found.summary


def test_a_rank_that_does_not_answer_and_holds_no_lock_is_where_its_stack_shows_it():
    recording = record(Rank(0, 2).waits("all_reduce", line(9)), Rank(1, 2).idles(12.0, line(4), answered=False))
    found = only_finding(recording)
    assert (found.code, found.culprits) == ("DDP313", (1,))
    assert "GIL" not in str(found) and any("is unresponsive too" in one for one in found.evidence)


def test_of_a_silent_rank_without_a_stack_nothing_more_is_said():
    recording = record(Rank(0, 2).waits("all_reduce", line(9)), Rank(1, 2).idles(12.0, answered=False))
    found = only_finding(recording)
    assert (found.code, found.culprits) == ("DDP314", (1,))
    assert "unknown reason" in found.summary
    assert "GIL" not in found.summary + found.remedy and "lock" not in found.summary + found.remedy


def test_what_is_true_of_one_frozen_rank_is_not_said_of_the_other():
    ranks = Rank(1, 3).stops(12.0, line(4)), Rank(2, 3).idles(12.0, answered=False)
    found = only_finding(record(Rank(0, 3).waits("all_reduce", line(9)), *ranks))
    assert (found.code, found.culprits) == ("DDP314", (1, 2))
    assert found.summary == "Ranks 1 and 2 are unresponsive; rank 0 waits for them."
    assert "Rank 1 is stopped (SIGSTOP)." in found.evidence


def test_a_reason_and_a_line_that_not_all_blocked_ranks_share_are_not_in_the_summary():
    places = [(line(4), "a lock"), (line(5), "the network")]
    ranks = [Rank(n, 3).idles(12.0, site, waits_on=what) for n, (site, what) in enumerate(places, 1)]
    found = only_finding(record(Rank(0, 3).waits("all_reduce", line(9)), *ranks))
    assert found.summary == "Ranks 1 and 2 are blocked outside any collective; rank 0 waits for them."
    assert "Rank 2 waits for the network in the kernel." in found.evidence


# -- DDP102: a world that never is complete


def test_the_one_rank_that_expects_another_world_is_the_culprit():
    recording = record(
        Rank(0, 3).starts(line(3), world_size=3),
        Rank(1, 3).starts(line(3), world_size=5),
        Rank(2, 3).starts(line(3), world_size=3),
    )
    found = only_finding(recording)
    assert (found.code, found.culprits) == ("DDP102", (1,))


# -- DDP108: groups with other members


def test_a_group_with_other_members_on_one_rank():
    """Torch lets those pass that are no members by their own list: they go on to the barrier."""
    recording = record(
        Rank(0).makes_group([0, 1], line(6), state="open"),
        Rank(1).makes_group([1, 2], line(6), state="open"),
        Rank(2).makes_group([0, 1], line(6)).waits("barrier", line(7)),
        Rank(3).makes_group([0, 1], line(6)).waits("barrier", line(7)),
    )
    found = only_finding(recording)
    assert (found.code, found.culprits) == ("DDP108", (1,))
    assert set(found.waiting) >= {0}
