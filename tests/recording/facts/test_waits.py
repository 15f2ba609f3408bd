from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.calls import CallState
from ddpnb.recording.facts.standings import standings
from ddpnb.recording.facts.waits import Wait, stuck, waits
from ddpnb.recording.recording import Recording
from tests.rules.recordings import Rank, group, line, record

PATIENCE = 10.0


def waits_of(recording: Recording) -> dict[int, Wait]:
    return waits(recording, standings(recording), PATIENCE)


def stuck_in(recording: Recording) -> set[int]:
    return set(stuck(waits_of(recording), standings(recording), PATIENCE))


def missing(recording: Recording, rank: int) -> set[int]:
    return set(waits_of(recording)[rank].missing)


def certain(recording: Recording, rank: int) -> set[int]:
    return set(waits_of(recording)[rank].certain)


# -- a call on meta tensors

PAIR = group(0, 1)


def test_a_call_on_meta_tensors_never_reaches_the_peers():
    """torch's dispatcher ends it; the rank then fails at what it wants to read from the result."""
    recording = record(
        Rank(0).waits("all_gather", group=PAIR), Rank(1).issues("all_gather", group=PAIR).raises("RuntimeError")
    )
    assert missing(recording, 0) == set()
    ended = recording.ranks[1]
    call = replace(ended.calls[0], signature=replace(ended.calls[0].signature, device="meta"))
    recording = replace(recording, ranks={**recording.ranks, 1: replace(ended, calls=(call,))})
    assert missing(recording, 0) == {1} and stuck_in(recording) == {0}


# -- what a rank in a collective waits for


def test_a_rank_waits_for_those_that_have_not_come():
    recording = record(
        Rank(0).waits("all_reduce"), Rank(1).issues("all_reduce"), Rank(2).computes(), Rank(3).computes()
    )
    assert missing(recording, 0) == certain(recording, 0) == {2, 3}


def test_a_rank_waits_for_members_only():
    recording = record(Rank(0).waits("all_reduce", group=PAIR), Rank(1).computes(), Rank(2).computes())
    assert missing(recording, 0) == {1}


def test_ranks_that_do_not_wait_have_no_wait():
    recording = record(Rank(0).computes(), Rank(1).finishes(), Rank(2).idles(60.0), Rank(3).stops(60.0))
    assert waits_of(recording) == {}


@pytest.mark.parametrize("op", ["broadcast", "scatter"])
def test_a_leaf_needs_the_root_for_certain_and_its_siblings_perhaps(op):
    recording = record(Rank(0).waits(op, root=2), *(Rank(rank).computes() for rank in (1, 2, 3)))
    assert missing(recording, 0) == {1, 2, 3}
    assert certain(recording, 0) == {2}


@pytest.mark.parametrize("op", ["gather", "reduce"])
def test_a_leaf_that_gives_needs_nobody_for_certain(op):
    recording = record(Rank(0).waits(op, root=2), *(Rank(rank).computes() for rank in (1, 2, 3)))
    assert missing(recording, 0) == {1, 2, 3}
    assert certain(recording, 0) == set()


@pytest.mark.parametrize("op", ["gather", "reduce"])
def test_a_root_that_takes_needs_all(op):
    recording = record(Rank(0).waits(op, root=0), *(Rank(rank).computes() for rank in (1, 2, 3)))
    assert certain(recording, 0) == {1, 2, 3}


def test_the_root_is_a_place_in_the_group_not_a_rank():
    members = group(1, 3, 5)
    recording = record(
        Rank(1).waits("broadcast", group=members, root=2), Rank(3).computes(), Rank(5).computes(), world_size=6
    )
    assert certain(recording, 1) == {5}


@pytest.mark.parametrize("root", [-1, 99])
def test_a_root_outside_of_the_group_is_unknown_so_all_are_needed(root):
    recording = record(Rank(0).waits("broadcast", root=root), Rank(1).computes(), Rank(2).computes(), Rank(3))
    assert certain(recording, 0) == {1, 2, 3}


# -- who can never continue


def test_a_straggler_keeps_everybody_alive():
    recording = record(Rank(0).waits("all_reduce"), Rank(1).waits("all_reduce"), Rank(2).computes(), Rank(3).computes())
    assert stuck_in(recording) == set()


def test_a_rank_that_ended_will_never_come():
    recording = record(*(Rank(rank).waits("all_reduce") for rank in range(3)), Rank(3).finishes())
    assert stuck_in(recording) == {0, 1, 2}


def test_one_that_will_never_come_is_enough():
    recording = record(Rank(0).waits("all_reduce"), Rank(1).computes(), Rank(2).computes(), Rank(3).finishes())
    assert stuck_in(recording) == {0}


def test_ranks_that_are_all_in_the_call_are_at_work():
    assert stuck_in(record(*(Rank(rank).waits("all_reduce", idle=60.0) for rank in range(4)))) == set()


def test_a_chain_of_waits_lives_as_long_as_its_end():
    def chain(end: Rank) -> Recording:
        first = Rank(0).waits("barrier", group=group(0, 1))
        second = Rank(1).waits("barrier", group=group(1, 2))
        return record(first, second, end, world_size=3)

    assert stuck_in(chain(Rank(2).computes())) == set()
    assert stuck_in(chain(Rank(2).finishes())) == {0, 1}


def test_a_cycle_of_two_groups_is_stuck():
    one, other = group(0, 1), group(0, 1, ordinal=1)
    recording = record(Rank(0).waits("all_reduce", group=one), Rank(1).waits("all_reduce", group=other))
    assert stuck_in(recording) == {0, 1}


def test_a_cycle_of_three_is_stuck_and_a_straggler_beside_it_does_not_help():
    recording = record(
        Rank(0).waits("barrier", group=group(0, 1)),
        Rank(1).waits("barrier", group=group(1, 2)),
        Rank(2).waits("barrier", group=group(0, 2)),
        Rank(3).computes(),
    )
    assert stuck_in(recording) == {0, 1, 2}


def test_a_group_beside_a_deadlock_lives():
    recording = record(
        Rank(0).waits("barrier", group=group(0, 1)),
        Rank(1).finishes(),
        Rank(2).waits("barrier", group=group(2, 3)),
        Rank(3).computes(),
    )
    assert stuck_in(recording) == {0}


@pytest.mark.parametrize(("idle", "held"), [(9.0, set()), (11.0, {0})])
def test_a_rank_blocked_elsewhere_is_waited_for_as_long_as_patience_says(idle, held):
    assert stuck_in(record(Rank(0, 2).waits("barrier"), Rank(1, 2).idles(idle))) == held


def test_a_sleeper_that_will_wake_is_waited_for():
    assert stuck_in(record(Rank(0, 2).waits("barrier"), Rank(1, 2).idles(60.0, wakes_in_s=3.0))) == set()


@pytest.mark.parametrize(("stopped", "held"), [(9.0, set()), (11.0, {0})])
def test_a_stopped_rank_is_waited_for_as_long_as_patience_says(stopped, held):
    assert stuck_in(record(Rank(0, 2).waits("barrier"), Rank(1, 2).stops(stopped))) == held


def test_an_explicit_timeout_comes_back_by_itself():
    recording = record(Rank(0, 2).waits("all_reduce", timeout_ms=5000), Rank(1, 2).finishes())
    assert waits_of(recording)[0].finite
    assert stuck_in(recording) == set()


def test_who_waits_for_an_explicit_timeout_is_alive_too():
    recording = record(
        Rank(0, 3).waits("barrier", group=group(0, 1)),
        Rank(1, 3).waits("barrier", group=group(1, 2), timeout_ms=5000),
        Rank(2, 3).finishes(),
    )
    assert stuck_in(recording) == set()


def test_a_leaf_of_a_broadcast_is_stuck_without_its_root():
    recording = record(Rank(0, 3).waits("broadcast", root=1), Rank(1, 3).finishes(), Rank(2, 3).computes())
    assert stuck_in(recording) == {0}


def test_a_leaf_of_a_broadcast_may_go_on_without_a_sibling():
    recording = record(Rank(0, 3).waits("broadcast", root=1), Rank(1, 3).computes(), Rank(2, 3).finishes())
    assert stuck_in(recording) == set()


def test_a_leaf_that_gives_is_stuck_when_none_of_those_it_may_need_lives():
    recording = record(Rank(0, 3).waits("reduce", root=1), Rank(1, 3).finishes(), Rank(2, 3).finishes())
    assert stuck_in(recording) == {0}


def test_a_leaf_that_gives_may_go_on_as_long_as_one_lives():
    recording = record(Rank(0, 3).waits("reduce", root=1), Rank(1, 3).finishes(), Rank(2, 3).computes())
    assert stuck_in(recording) == set()


# -- point to point


def test_a_receive_is_matched_by_a_send():
    recording = record(Rank(0, 2).waits("recv", peer=1), Rank(1, 2).sends(0, state=CallState.ISSUED).computes())
    assert missing(recording, 0) == set()


def test_a_send_is_matched_by_a_receive():
    recording = record(Rank(0, 2).waits("send", peer=1), Rank(1, 2).receives(0, state=CallState.ISSUED).computes())
    assert missing(recording, 0) == set()


@pytest.mark.parametrize(
    "more",
    [{"tag": 5}, {"group": group(0, 1, ordinal=1)}],
    ids=["tag", "group"],
)
def test_a_send_of_another_channel_does_not_match(more):
    recording = record(Rank(0, 2).waits("recv", peer=1, tag=7), Rank(1, 2).sends(0, **{"tag": 7, **more}).computes())
    assert missing(recording, 0) == certain(recording, 0) == {1}


def test_a_send_to_somebody_else_does_not_match():
    recording = record(Rank(0, 3).waits("recv", peer=1), Rank(1, 3).sends(2).computes(), Rank(2, 3).computes())
    assert missing(recording, 0) == {1}


def test_the_second_receive_needs_a_second_send():
    once = record(Rank(0, 2).receives(1).waits("recv", peer=1), Rank(1, 2).sends(0).computes())
    twice = record(Rank(0, 2).receives(1).waits("recv", peer=1), Rank(1, 2).sends(0).sends(0).computes())
    assert missing(once, 0) == {1}
    assert missing(twice, 0) == set()


def test_the_second_send_needs_a_second_receive():
    once = record(Rank(0, 2).sends(1).waits("send", peer=1), Rank(1, 2).receives(0).computes())
    assert missing(once, 0) == {1}


def test_receives_of_another_tag_are_not_counted():
    recording = record(Rank(0, 2).receives(1, tag=3).waits("recv", peer=1, tag=4), Rank(1, 2).sends(0, tag=4))
    assert missing(recording, 0) == set()


def test_two_that_receive_first_are_stuck():
    recording = record(Rank(0, 2).waits("recv", peer=1), Rank(1, 2).waits("recv", peer=0))
    assert stuck_in(recording) == {0, 1}


def test_a_ring_of_receives_is_stuck():
    assert stuck_in(record(*(Rank(rank).waits("recv", peer=(rank - 1) % 4) for rank in range(4)))) == {0, 1, 2, 3}


def test_if_rank_0_sends_and_rank_1_receives_all_is_well():
    recording = record(Rank(0, 2).waits("send", peer=1), Rank(1, 2).waits("recv", peer=0))
    assert stuck_in(recording) == set()


def test_a_send_that_the_backend_refused_was_never_sent():
    recording = record(Rank(0, 2).waits("recv", peer=1), Rank(1, 2).sends(0, state=CallState.REFUSED).computes())
    assert missing(recording, 0) == {1}


@pytest.mark.parametrize(("idle", "held"), [(3.0, set()), (11.0, {1})])
def test_a_dropped_send_may_have_arrived_until_patience_is_over(idle, held):
    recording = record(
        Rank(0, 2).sends(1, state=CallState.DROPPED).finishes(),
        Rank(1, 2).waits("recv", peer=0, idle=idle),
    )
    assert stuck_in(recording) == held


def test_a_receive_from_a_rank_that_is_not_there_is_stuck_on_no_rank():
    recording = record(Rank(0, 2).waits("recv", peer=77), Rank(1, 2).computes())
    assert missing(recording, 0) == {77}


@pytest.mark.parametrize("op", ["send", "recv"])
def test_a_message_of_a_group_whose_members_are_not_known_accuses_nobody(op):
    recording = record(Rank(0, 2).waits(op, peer=-1, group=group(0)), Rank(1, 2).finishes())
    assert missing(recording, 0) == stuck_in(recording) == set()


def test_turns_count_calls_that_have_left_the_ring():
    """Of 5000 sends and receives the last ones are recorded, on one rank more of them than on the other."""
    sender = Rank(0, 2).forgets(4990)
    for turn in range(4991, 5001):
        sender.sends(1, turn=turn)
    receiver = Rank(1, 2).forgets(4999).receives(0, turn=5000).waits("recv", peer=0, turn=5001)
    assert missing(record(sender.computes(), receiver), 1) == {0}
    assert missing(record(sender.sends(1, turn=5001).computes(), receiver), 1) == set()


def test_a_peer_that_has_forgotten_its_calls_has_the_benefit_of_the_doubt():
    sender = Rank(0, 2).forgets(5000).calls("barrier").finishes()
    assert stuck_in(record(sender, Rank(1, 2).waits("recv", peer=0))) == set()


# -- receives from any rank


def test_a_receive_from_any_rank_is_matched_by_any_send():
    recording = record(Rank(0, 3).waits("recv_any_source"), Rank(1, 3).computes(), Rank(2, 3).sends(0).computes())
    assert missing(recording, 0) == set()


def test_a_receive_from_any_rank_lives_as_long_as_one_rank_does():
    def with_last(last: Rank) -> Recording:
        return record(Rank(0, 3).waits("recv_any_source"), Rank(1, 3).finishes(), last)

    assert stuck_in(with_last(Rank(2, 3).computes())) == set()
    assert stuck_in(with_last(Rank(2, 3).finishes())) == {0}


def test_a_send_that_was_received_by_name_does_not_match_a_receive_from_any():
    recording = record(
        Rank(0, 2).receives(1).waits("recv_any_source"),
        Rank(1, 2).sends(0).finishes(),
    )
    assert stuck_in(recording) == {0}


def test_a_send_that_was_received_from_any_does_not_match_the_next_one():
    recording = record(
        Rank(0, 3).calls("recv_any_source").waits("recv_any_source"),
        Rank(1, 3).sends(0).finishes(),
        Rank(2, 3).finishes(),
    )
    assert stuck_in(recording) == {0}


@pytest.mark.parametrize(("tag", "held"), [(0, set()), (4, {0})])
def test_a_receive_from_any_rank_minds_the_tag(tag, held):
    recording = record(Rank(0, 2).waits("recv_any_source"), Rank(1, 2).sends(0, tag=tag).finishes())
    assert stuck_in(recording) == held


def test_a_send_is_matched_by_a_receive_from_any_rank():
    recording = record(Rank(0, 2).waits("send", peer=1), Rank(1, 2).calls("recv_any_source").computes())
    assert missing(recording, 0) == set()


# -- start-up


def test_start_up_waits_for_all_of_the_world():
    recording = record(Rank(0, 3).starts(), Rank(1, 3).absent().computes(), Rank(2, 3).starts())
    assert missing(recording, 0) == {1}


def test_start_up_waits_for_ranks_that_were_never_launched():
    assert missing(record(Rank(0, 2).starts(world_size=4), Rank(1, 2).starts(world_size=4)), 0) == {2, 3}


@pytest.mark.parametrize("size", [None, "", "four", []])
def test_a_world_size_that_is_no_number_is_that_of_the_launch(size):
    rank = Rank(0, 2).absent().idles(0.0).phase("init_process_group", "open", world_size=size)
    recording = record(rank, Rank(1, 2).absent().computes())
    assert missing(recording, 0) == {1}


def test_a_world_size_that_cannot_be_is_bounded():
    recording = record(Rank(0, 1).starts(world_size=1 << 60))
    assert len(missing(recording, 0)) < 1 << 17


def test_the_second_start_up_waits_for_the_second_of_the_others():
    again = Rank(0, 2).leaves_world().phase("init_process_group", "open", world_size=2).idles(0.0)
    recording = record(again, Rank(1, 2).computes())
    assert missing(recording, 0) == {1}


# -- new groups


def test_a_new_group_waits_for_its_members():
    recording = record(
        Rank(0).makes_group([0, 1, 2], state="open"),
        Rank(1).makes_group([0, 1, 2], state="open"),
        Rank(2).finishes(),
        Rank(3).computes(),
    )
    assert missing(recording, 0) == {2}
    assert stuck_in(recording) == {0, 1}


def test_the_same_members_under_another_name_are_another_group():
    """Rank 1 made one group more before: torch's names, which count all groups, no longer fit."""
    recording = record(
        Rank(0, 2).makes_group([0, 1], state="open"),
        Rank(1, 2).makes_group([1]).makes_group([0, 1], state="open"),
    )
    assert stuck_in(recording) == {0, 1}


def test_a_locally_synchronised_group_is_named_by_its_members_alone():
    recording = record(
        Rank(0, 2).makes_group([0, 1], state="open", local=True),
        Rank(1, 2).makes_group([1], local=True).makes_group([0, 1], state="open", local=True),
    )
    assert missing(recording, 0) == missing(recording, 1) == set()


@pytest.mark.parametrize("forgotten", [0, 1])
def test_a_rank_that_has_forgotten_groups_is_there_if_it_stands_in_the_same_call(forgotten):
    """The same members make a group twice, and rank 1 has forgotten that it made the first."""
    first, second = Rank(0, 2), Rank(1, 2)
    first.makes_group([0, 1], local=True)
    second.makes_group([1], local=True) if forgotten else second.makes_group([0, 1], local=True)
    for rank in (first, second):
        rank.makes_group([0, 1], state="open", local=True)
    second.forgets_events(forgotten)
    assert missing(record(first, second), 0) == missing(record(first, second), 1) == set()
    away = Rank(1, 2).computes().forgets_events(3)
    assert missing(record(first, away), 0) == {1}


@pytest.mark.parametrize("ranks", [None, 5, ["a"], [None]], ids=str)
def test_a_new_group_of_nonsense_never_raises(ranks):
    recording = record(Rank(0, 2).makes_group(ranks, line(3), state="open"), Rank(1, 2).computes())
    assert 0 not in stuck_in(recording)
