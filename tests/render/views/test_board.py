"""The board: what every rank does, and ranks that do the same taken together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.calls import Call, CallState, Group, Signature
from ddpnb.recording.findings import Finding, FindingType
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import Process, RankRecord, Recording
from ddpnb.render import board as render
from ddpnb.render.views.board import SINGLE, tiles
from ddpnb.rules.finding_types import type_of
from tests.rules.recordings import Rank, group, line, record

HOUR = 3600 * 10**9


def board(*ranks, findings=(), taken_ns=0):
    return tiles(replace(record(*ranks), taken_ns=taken_ns), findings)


def one(rank, **more):
    return board(rank, **more)[0]


def many(size, odd=()):
    """All wait in the same all_reduce, but for those that have ended without it."""
    members = Group(tuple(range(size)), label="default_pg")
    waiting = Call(0, members, 1, Signature("all_reduce"), line(9), CallState.WAITING, entered_ns=1)
    return Recording(
        size,
        {
            rank: Rank(rank, size).finishes().record
            if rank in odd
            else RankRecord(rank, calls=(waiting,), process=Process("idle", 1.0), steps=rank)
            for rank in range(size)
        },
        taken_ns=2 * 10**9,
    )


# -- what a rank does


def test_a_rank_that_waits_says_in_which_call_for_whom_and_where():
    first, second = board(Rank(0, 2).waits("all_reduce", line(9)), Rank(1, 2).computes(line(12)))
    assert (first.state, first.doing, first.missing) == ("waiting", "all_reduce #1 of default_pg", (1,))
    assert first.site == line(9)
    assert (second.state, second.doing) == ("computing", "")


def test_a_rank_that_is_held_stands_before_its_call():
    found = one(Rank(0, 1).calls("broadcast", line(3), state=CallState.HELD).idles(1.0, line(3)))
    assert (found.state, found.doing) == ("held", "broadcast #1 of default_pg")


@pytest.mark.parametrize(
    ("ended", "doing", "well"),
    [
        (Rank(0).finishes(), "finished", True),
        (Rank(0).exits(0), "finished", True),
        (Rank(0).exits(3), "exited with status 3", False),
        (Rank(0).raises("KeyError", "'x'"), "KeyError: 'x'", False),
        (Rank(0).dies(-9), "killed (SIGKILL)", False),
    ],
)
def test_a_rank_that_has_ended_says_how(ended, doing, well):
    found = one(ended)
    assert (found.state, found.doing, found.well, found.since_s) == ("ended", doing, well, None)


@pytest.mark.parametrize(
    ("rank", "state", "doing"),
    [
        (Rank(0).calls("barrier").stops(4.0), RankState.UNRESPONSIVE, "after barrier #1"),
        (Rank(0).calls("barrier").idles(4.0, answered=False), RankState.UNRESPONSIVE, "after barrier #1"),
        (Rank(0).idles(4.0, waits_on="futex: a lock"), RankState.BLOCKED, "futex: a lock"),
        (Rank(0).idles(4.0), RankState.BLOCKED, ""),
        (Rank(0).starts(), RankState.STARTING, "init_process_group"),
        (Rank(0).makes_group([0, 1], state="open"), RankState.CREATING_GROUP, "new_group"),
        (Rank(0).calls("barrier").computes(), RankState.COMPUTING, "after barrier #1"),
        (Rank(0).is_gone(), "unknown", ""),
    ],
)
def test_every_other_state_has_its_words(rank, state, doing):
    found = one(rank)
    assert (found.state, found.doing) == (state, doing)


@pytest.mark.parametrize(("pid", "doing"), [(7, "nothing is running"), (0, "no process of it was seen")])
def test_a_rank_of_which_nothing_is_known_is_at_its_prompt(pid, doing):
    found = tiles(
        Recording(
            2, {0: RankRecord(0, pid, process=Process("gone")), 1: RankRecord(1, process=Process("stopped", 3.0))}
        )
    )
    assert (found[0].state, found[0].doing, found[0].since_s) == ("idle", doing, None)
    assert (found[1].state, found[1].since_s) == (RankState.UNRESPONSIVE, 3.0)


def test_an_empty_recording_has_no_tiles():
    assert tiles(Recording(0, {})) == ()


# -- since when


def test_the_time_in_a_call_counts_from_when_it_was_entered():
    assert one(Rank(0).waits("barrier"), taken_ns=5 * 10**9).since_s == pytest.approx(5.0, abs=0.01)
    assert one(Rank(0).starts(), taken_ns=5 * 10**9).since_s == pytest.approx(5.0, abs=0.01)
    assert one(Rank(0).idles(7.0)).since_s == 7.0


@pytest.mark.parametrize("taken_ns", [0, -1])
def test_a_recording_without_a_moment_says_no_time(taken_ns):
    assert one(Rank(0).waits("barrier"), taken_ns=taken_ns).since_s is None


def test_a_call_without_a_time_says_none():
    rank = Rank(0).waits("barrier").record
    timeless = replace(rank, calls=tuple(replace(call, entered_ns=0) for call in rank.calls))
    assert tiles(Recording(1, {0: timeless}, taken_ns=HOUR))[0].since_s is None


def test_clocks_that_disagree_by_hours_give_no_time_below_zero():
    slow, fast = (
        replace(found, calls=tuple(replace(call, entered_ns=call.entered_ns + by) for call in found.calls))
        for found, by in ((Rank(0, 2).waits("barrier").record, 0), (Rank(1, 2).waits("barrier").record, 5 * HOUR))
    )
    found = tiles(Recording(2, {0: slow, 1: fast}, taken_ns=3 * HOUR))
    assert found[0].since_s == pytest.approx(3 * 3600, abs=1)
    assert found[1].since_s is None


# -- what the findings say


def test_the_first_finding_that_names_a_rank_counts():
    findings = (
        Finding(type_of("DDP301"), "", (1,), (0, 2)),
        Finding(FindingType("DDP999", "unknown"), "", (1, 2), (0,)),
    )
    found = board(*(Rank(rank, 3).computes() for rank in range(3)), findings=findings)
    assert [tile.finding for tile in found] == ["", "DDP301", "DDP999"]


def test_a_culprit_that_has_ended_has_the_line_of_its_finding():
    missing = Finding(type_of("DDP301"), "", (1,), where=((1, line(41)), (1, line(30)), (0, line(9))))
    first, second = board(
        Rank(0, 2).waits("all_reduce", line(9)), Rank(1, 2).calls("barrier", line(30)).finishes(), findings=(missing,)
    )
    assert (first.site, second.site) == (line(9), line(41))


@pytest.mark.parametrize("severity", ["warning", "note"])
def test_only_errors_have_culprits(severity):
    finding = Finding(type_of("DDP315"), "", (0,), (1,), severity=severity)
    assert not any(tile.finding or tile.undecided for tile in board(Rank(0, 2), Rank(1, 2), findings=[finding]))


def test_findings_about_ranks_that_are_not_there_are_no_matter():
    assert board(Rank(0, 1).computes(), findings=[Finding(type_of("DDP301"), "", (99,), (98,))])[0].finding == ""


# -- odd recordings


def test_unknown_operations_and_groups_are_shown_as_they_are():
    found = one(Rank(0).waits("all_to_some", group=group(0, 7, 9, ordinal=2)))
    assert found.doing == "all_to_some #1 of group [0, 7, 9] #3"
    assert found.missing == (7, 9)


def test_a_rank_whose_peers_are_not_recorded_waits_for_them():
    assert one(Rank(0, 3).waits("all_reduce")).missing == (1, 2)


# -- many ranks


def test_up_to_a_few_dozen_ranks_have_a_tile_each():
    assert [tile.ranks for tile in tiles(many(SINGLE))] == [(rank,) for rank in range(SINGLE)]


def test_a_thousand_ranks_that_do_the_same_share_a_tile_and_culprits_come_first():
    finding = Finding(type_of("DDP301"), "", (7, 500), tuple(rank for rank in range(1000) if rank not in (7, 500)))
    first, second = tiles(many(1000, odd=(7, 500)), [finding])
    assert (first.ranks, first.finding, first.state) == ((7, 500), "DDP301", "ended")
    assert len(second.ranks) == 998 and second.state == "waiting" and second.missing == (7, 500)
    assert second.steps == 0 and second.since_s == pytest.approx(2.0)


def test_in_an_open_tie_the_ranks_of_all_sides_are_marked_as_such():
    tie = Finding(type_of("DDP303"), "", sides=((0,), (1,)))
    ranks = [Rank(n, 3).computes(line(9)) for n in range(3)]
    assert [(one.finding, one.undecided) for one in board(*ranks, findings=[tie])] == [
        ("", "DDP303"),
        ("", "DDP303"),
        ("", ""),
    ]
    named = Finding(type_of("DDP312"), "", (1,))
    assert [(one.finding, one.undecided) for one in board(*ranks, findings=[tie, named])][:2] == [
        ("", "DDP303"),
        ("DDP312", ""),
    ]


def test_what_is_only_a_warning_marks_no_rank():
    tie = Finding(type_of("DDP316"), "", severity="warning", sides=((0,), (1,)))
    assert [one.undecided for one in board(*(Rank(n, 2) for n in range(2)), findings=[tie])] == ["", ""]


def test_ranks_on_a_side_share_no_tile_with_others_and_come_before_them():
    tie = Finding(type_of("DDP303"), "", sides=((7,), (500,)))
    found = tiles(many(1000), [tie])
    assert [(one.ranks[0], len(one.ranks), one.undecided) for one in found] == [(7, 2, "DDP303"), (0, 998, "")]


def test_ranks_of_one_tile_are_all_the_ranks_there_are():
    found = tiles(many(300, odd=range(0, 300, 3)))
    assert sorted(rank for tile in found for rank in tile.ranks) == list(range(300))


def test_those_that_ended_with_an_error_do_not_share_a_tile_with_those_that_ended_well():
    ranks = [Rank(rank, 70).finishes() if rank else Rank(rank, 70).exits(1) for rank in range(70)]
    assert [(tile.ranks[0], len(tile.ranks), tile.well) for tile in board(*ranks)] == [(0, 1, False), (1, 69, True)]


def test_a_thousand_ranks_that_each_do_something_else_are_bounded_and_none_is_forgotten():
    ranks = [Rank(rank, 1000).raises("ValueError", f"in batch {rank}") for rank in range(1000)]
    found = board(*ranks, findings=[Finding(type_of("DDP312"), "", (999,))])
    assert len(found) == 200
    assert found[0].ranks == (999,)
    assert sorted(rank for tile in found for rank in tile.ranks) == list(range(1000))


def test_the_last_checkpoint_that_a_rank_passed():
    found = one(Rank(0, 1).passes(1, "start", line(3)).passes(2, "ready", line(5)).computes(line(9)))
    assert (found.checkpoint.name, found.checkpoint.site, found.further) == ("ready", line(5), False)
    assert one(Rank(0, 1).computes(line(9))).checkpoint is None


def test_ranks_of_one_tile_show_the_checkpoint_that_all_of_them_passed():
    def ranks(numbers):
        return [
            (Rank(rank, 70).passes(number, f"c{number}", line(3)) if number else Rank(rank, 70)).computes(line(9))
            for rank, number in enumerate(numbers)
        ]

    def of_tile(numbers):
        (tile,) = board(*ranks(numbers))
        return tile.checkpoint and tile.checkpoint.number, tile.further

    assert of_tile([2] * 70) == (2, False)
    assert of_tile([3, *[2] * 69]) == (2, True)
    assert of_tile([0, *[2] * 69]) == (None, False)


def test_a_tile_says_where_its_rank_is_in_the_mesh():
    rank = Rank(3).phase("device mesh", "done", names=["dp", "tp"], shape=[2, 2], coordinate=[1, 0])
    rank.phase("device mesh", "done", names=["tp"], shape=[2], coordinate=[0])
    placed = group(2, 3, label="mesh_tp")
    rank.waits("all_reduce", line(9), group=replace(placed, axes="tp", at="dp=1"))
    (found,) = tiles(record(rank, world_size=4))
    assert (found.coordinate, found.doing) == ("dp=1, tp=0", "all_reduce #1 of mesh_tp (dp=1)")
    assert (
        found.call == found.doing and "dp=1, tp=0" in render.board((found,)) and "dp=1, tp=0" in render.text((found,))
    )
