"""Groups of one name that have different members. Groups that not all make: test_startup.py and test_missing_calls.py."""

import pytest

from ddpnb.recording.calls import Group
from ddpnb.rules.diagnose import diagnose
from tests.rules.recordings import Rank, line, record

MADE, CALLED = line(12), line(15)
PAIRS = {0: [0, 1], 1: [0, 1], 2: [2, 3], 3: [2, 3]}


def made(rank, members, **facts):
    return Rank(rank).makes_group(members, MADE, **facts)


def of(members):
    return Group(tuple(members), name="1")


@pytest.mark.parametrize(("idle", "severity"), [(12.0, "warning"), (3.0, "warning"), (12.0, "error")])
def test_groups_that_only_their_members_make_have_one_name(idle, severity):
    """Ranks 0 and 1 found each other's addresses, ranks 2 and 3 did not."""
    ranks = [made(rank, members) for rank, members in PAIRS.items()]
    for rank in ranks[:2]:
        rank.calls("all_reduce", CALLED, group=of([0, 1])).finishes()
    for rank in ranks[2:]:
        rank.waits("all_reduce", CALLED, group=of([2, 3]), idle=idle)
    told = diagnose(record(*ranks), end_after_patience=severity == "error")
    (found,) = told.findings
    assert (found.code, found.severity, found.sides) == ("DDP108", severity, ((0, 1), (2, 3)))
    assert found.summary == "Ranks made different groups under one name, '1'."
    assert {"Ranks 0 and 1 made [0, 1].", "Ranks 2 and 3 made [2, 3]."} <= set(found.evidence)
    assert found.evidence[0].startswith("Ranks 2 and 3 are all in all_reduce") == (idle > 10)
    assert told.outcome == ("hang" if severity == "error" else "ok")


@pytest.mark.parametrize("odd", ["by all", "local", "before a second start", "of one rank each", "some are forgotten"])
def test_groups_of_other_names(odd):
    ranks = [Rank(rank) for rank in PAIRS]
    for number, rank in enumerate(ranks):
        if odd == "by all":
            rank.makes_group([0, 1], MADE).makes_group([2, 3], MADE)
        elif odd == "of one rank each":
            rank.makes_group([number], MADE)
        elif odd == "local":
            rank.makes_group(PAIRS[number], MADE, local=True)
        elif odd == "some are forgotten":
            rank.makes_group(PAIRS[number], MADE).forgets_events(3)
        else:
            rank.makes_group([0, 1] if number < 2 else [0, 1, 2, 3], MADE).leaves_world().joins()
        rank.finishes()
    assert diagnose(record(*ranks)).findings == ()


def test_the_rank_whose_lists_are_unlike_those_of_all_others():
    """Every rank makes all groups, of its own measure of speed: ranks 2 and 3 meet under the name of the second."""
    lists = {0: ([0, 1], [2, 3]), 1: ([0, 1], [2, 3]), 2: ([0, 1], [2, 3]), 3: ([0, 2], [1, 3])}
    ranks = [made(rank, first).makes_group(second, MADE).finishes() for rank, (first, second) in lists.items()]
    (found,) = diagnose(record(*ranks)).findings
    assert (found.code, found.severity, found.culprits, found.sides) == ("DDP108", "warning", (3,), ())
    assert "The first calls of new_group that differ: [0, 1] on ranks 0, 1 and 2, [0, 2] on rank 3." in found.evidence


def test_most_ranks_are_not_right_where_only_members_make_groups():
    ranks = [made(rank, [0, 1, 2] if rank < 3 else [3, 4]).finishes() for rank in range(5)]
    (found,) = diagnose(record(*ranks)).findings
    assert (found.culprits, found.sides) == ((), ((0, 1, 2), (3, 4)))
