"""As many ranks as a cluster has: nothing is asked once for each pair of them, and what is said can be read."""

from __future__ import annotations

import random

import pytest

from ddpnb.recording import phrases
from ddpnb.recording.calls import Group
from ddpnb.recording.facts.cycles import connected_parts, ranks_in_a_cycle
from ddpnb.recording.facts.once import once
from ddpnb.recording.facts.standings import Standing, standings
from ddpnb.recording.facts.waits import Wait, stuck, waits
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import Process, RankRecord, Recording
from ddpnb.render import board as boards
from ddpnb.render import card
from ddpnb.render.views import board
from tests.rules.recordings import Rank, diagnose, group, line, record

MANY = 200


def waits_of(taken):
    return waits(taken, standings(taken), 10.0)


# -- one answer for all that wait at one place


@pytest.mark.parametrize(
    "stands",
    [
        lambda rank: rank.waits("all_reduce", line(5)),
        lambda rank: rank.starts(line(2), address="a:1"),
        lambda rank: rank.makes_group(list(range(8)), line(3), state="open"),
    ],
    ids=["in a collective", "at start-up", "in a new group"],
)
def test_ranks_that_wait_at_one_place_share_what_they_wait_for(stands):
    found = waits_of(record(*(stands(Rank(n, 8)) for n in range(7)), Rank(7, 8).absent().computes(line(4))))
    assert set(found[0].missing) == {7}
    assert all(found[rank].missing is found[0].missing for rank in range(7))


def test_ranks_at_different_collectives_do_not():
    ahead = (Rank(n, 4).calls("all_reduce", line(5)).waits("all_reduce", line(6)) for n in (0, 1))
    found = waits_of(record(*ahead, Rank(2, 4).waits("all_reduce", line(5)), Rank(3, 4).computes()))
    assert [set(found[rank].missing) for rank in range(3)] == [{2, 3}, {2, 3}, {3}]


def test_what_concerns_all_ranks_is_worked_out_once():
    asked = []

    @once
    def question(recording, more=0):
        asked.append(recording)
        return len(recording.ranks) + more

    one, other = (record(Rank(0, 1).finishes()) for _ in range(2))
    assert [question(one), question(one), question(one, more=2), question(other)] == [1, 1, 3, 1]
    assert len(asked) == 3
    assert one == other  # it is no part of the Recording
    assert "known" not in repr(one)


# -- the graph, against what one would write without a thought for its size


def graphs():
    for seed in range(150):
        dice = random.Random(seed)
        size = dice.randint(1, 9)
        sets = [frozenset(dice.sample(range(size + 2), dice.randrange(size))) for _ in range(3)]
        found, placed = {}, {}
        for rank in range(size):
            state = dice.choice((*[RankState.WAITING] * 3, RankState.COMPUTING, RankState.ENDED))
            placed[rank] = Standing(rank, state, RankRecord(rank, process=Process("idle")))
            if state is RankState.WAITING:
                missing = dice.choice(sets) - {rank}
                certain = dice.choice((missing, missing, frozenset(), frozenset(list(missing)[:1])))
                found[rank] = Wait(placed[rank], missing, certain, dice.random() < 0.05)
        yield seed, found, placed


def plainly_stuck(found, placed):
    live = {rank for rank, one in placed.items() if one.state is RankState.COMPUTING}
    for _ in placed:
        for rank, wait in found.items():
            possible = wait.missing - wait.certain
            comes = wait.certain <= live and (not possible or bool(wait.certain) or bool(possible & live))
            if not wait.missing or wait.finite or comes:
                live.add(rank)
    return set(found) - live


def plain_parts(found, held):
    parts = []
    for rank in sorted(held):
        joined = {rank} | set(found[rank].missing)
        joined = joined.union(*(part for part in parts if part & joined))
        parts = [*(part for part in parts if not part & joined), joined]
    return parts


def reached(found, start):
    seen, front = set(), {start}
    while front:
        front = {m for rank in front for m in found[rank].missing if m in found} - seen
        seen |= front
    return seen


def test_stuck_ranks_knots_and_cycles_are_what_they_were():
    cycles = 0
    for seed, found, placed in graphs():
        held = stuck(found, placed, 10.0)
        assert held == plainly_stuck(found, placed), seed
        assert connected_parts(found, held) == plain_parts(found, held), seed
        turning = tuple(rank for rank in sorted(found) if rank in reached(found, rank))
        assert ranks_in_a_cycle(found, found) == turning, seed
        cycles += bool(turning)
    assert cycles > 20


def test_a_chain_of_waits_that_ends_at_a_rank_that_computes():
    ranks = [Rank(n, MANY).receives(n + 1).waits("recv", line(5), peer=n + 1) for n in range(MANY - 1)]
    found = diagnose(record(*ranks, Rank(MANY - 1, MANY).computes(line(4))))
    assert [one.code for one in found.findings] == ["DDP315"]


# -- what is said


def missing(ended):
    return record(
        *(
            Rank(n, MANY).finishes() if n in ended else Rank(n, MANY).waits("all_reduce", line(5))
            for n in range(MANY)
        )
    )  # fmt: skip


def each_its_own_way():
    return record(*(Rank(n, MANY).calls("all_reduce").raises(f"Error{n}", "bad", line(5)) for n in range(MANY)))


def each_another_shape():
    return record(*(Rank(n, MANY).waits("all_reduce", line(5), shape=(1 + n,)) for n in range(MANY)))


def splits_that_do_not_fit():
    def sends(rank):
        return (2,) + (1,) * (MANY - 1) if rank == 3 else (1,) * MANY

    return record(
        *(
            Rank(n, MANY).waits("all_to_all_single", line(5), in_splits=sends(n), out_splits=(1,) * MANY)
            for n in range(MANY)
        )
    )


def group_of_most():
    members = list(range(MANY))
    ranks = (Rank(n, MANY).makes_group(members, line(3), state="open") for n in range(MANY) if n != 3)
    return record(*ranks, Rank(3, MANY).idles(60.0, line(4)).finishes())


def many_groups():
    ranks = []
    for n in range(MANY):
        row = group(*range(n // 4 * 4, n // 4 * 4 + 4))
        one = Rank(n, MANY)
        ranks.append(one.finishes() if n % 4 == 3 else one.waits("all_reduce", line(5 + n // 4), group=row))
    return record(*ranks)


@pytest.mark.parametrize(
    ("taken", "code"),
    [
        (missing({3}), "DDP301"),
        (missing(set(range(1, MANY, 2))), "DDP301"),
        (each_its_own_way(), "DDP312"),
        (each_another_shape(), "DDP303"),
        (splits_that_do_not_fit(), "DDP305"),
        (group_of_most(), "DDP108"),
        (many_groups(), "DDP301"),
    ],
    ids=["one missing", "half missing", "each its own way", "shapes", "splits", "a new group", "many groups"],
)
def test_what_is_said_of_many_ranks_can_be_read(taken, code):
    found = diagnose(taken)
    first = found.findings[0]
    assert first.code == code
    assert len(first.summary) < 500
    assert len(first.evidence) <= 24
    assert max(map(len, first.evidence), default=0) < 300
    assert card.text(found, width=100).count("\n") < 200
    assert len(boards.headline(board.tiles(taken, found.findings))) < 2500


def test_findings_for_which_there_is_no_room_are_named():
    shown = card.text(diagnose(each_its_own_way()), width=100)
    assert f"And {MANY - 16} more: DDP312 rank-raised (ranks 16-{MANY - 1})." in shown


def test_sides_for_which_there_is_no_room_are_counted():
    (found,) = diagnose(each_another_shape()).findings
    assert found.evidence[8] == f"Ranks 8-{MANY - 1} called it in {MANY - 8} other ways."


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({*range(1024)} - {3}, "ranks 0-2 and 4-1023"),
        ({*range(20)} - {0, 7}, "ranks 1-6 and 8-19"),
        ({*range(5)} | {9}, "ranks 0, 1, 2, 3, 4 and 9"),  # a few are named
        (range(0, 100, 2), "ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18 and 40 more"),
    ],
)
def test_runs_of_ranks(numbers, said):
    assert phrases.ranks(numbers) == said


@pytest.mark.parametrize(
    ("members", "said"),
    [
        (range(4), "group [0, 1, 2, 3]"),
        (range(1023), "group [0-1022]"),
        ([*range(8), *range(16, 32)], "group [0-7, 16-31]"),
        (range(0, 1024, 8), "group [0, 8, 16, 24 ... 1016: 128 ranks]"),
    ],
)
def test_the_members_of_a_large_group(members, said):
    assert str(Group(tuple(members))) == said


def test_groups_are_the_same_by_their_members_whatever_they_are_called():
    assert Group((0, 1), label="a") == Group((0, 1), name="7")
    assert len({Group((0, 1), label="a"), Group((0, 1)), Group((0, 1), 1), Group((1, 0))}) == 3


def test_nothing_is_said_where_nothing_is_known():
    assert diagnose(Recording(MANY, {})).findings == ()
