"""One collective on all its ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.calls import UNKNOWN_REDUCTION, CallState, Signature
from ddpnb.recording.collectives import (
    Collective,
    Direction,
    MatchState,
    collective_of,
    collectives,
    direction_of,
    message_key,
    needed_ranks,
    root_of,
)
from ddpnb.recording.recording import Recording
from tests.rules.recordings import Rank, group, record, world_group

PAIR = group(0, 1)


def collective(*ranks: Rank) -> Collective:
    """The last collective of the first rank."""
    recording = record(*ranks)
    return collective_of(recording, recording.ranks[0].calls[-1])


# -- the missing ranks


def arrived(peer: Rank | None) -> bool:
    """Whether rank 1 is not missing in the third call of its group, in which rank 0 waits."""
    waiting = Rank(0).waits("all_reduce", group=PAIR, seq=3)
    recording = record(waiting, *([peer] if peer is not None else []))
    return collective_of(recording, waiting.record.calls[-1]).missing_ranks == frozenset()


@pytest.mark.parametrize(
    ("state", "there"),
    [
        (CallState.ENTERED, True),
        (CallState.ISSUED, True),
        (CallState.COMPLETED, True),
        (CallState.FAILED, True),
        (CallState.FENCED, False),
        (CallState.REFUSED, False),
    ],
)
def test_a_call_arrives_unless_no_peer_has_seen_it(state, there):
    peer = Rank(1).calls("all_reduce", group=PAIR, seq=3, state=state)
    assert arrived(peer) is there


def test_a_rank_that_is_behind_has_not_arrived():
    assert not arrived(Rank(1).calls("all_reduce", group=PAIR, seq=2))


def test_a_rank_of_which_nothing_is_known_has_not_arrived():
    assert not arrived(None)
    assert not arrived(Rank(1))


def test_a_call_that_has_left_the_ring_has_been_made():
    assert arrived(Rank(1).calls("all_reduce", group=PAIR, seq=9000))


def test_a_torn_record_between_two_that_are_whole_has_been_made():
    peer = Rank(1).calls("barrier", group=PAIR, seq=2).calls("barrier", group=PAIR, seq=4)
    assert arrived(peer)


def test_a_fenced_call_stays_unseen_though_later_ones_follow():
    peer = Rank(1).calls("barrier", group=PAIR, seq=3, state=CallState.FENCED).calls("barrier", group=PAIR, seq=4)
    assert not arrived(peer)


def test_a_rank_that_has_forgotten_its_calls_of_a_group_has_the_benefit_of_the_doubt():
    peer = Rank(1).calls("all_reduce", seq=5000).forgets(4999)
    assert arrived(peer)
    assert not arrived(peer.forgets(0))


@pytest.mark.parametrize("other", [group(0, 1, ordinal=1), group(1, 2), world_group(4)])
def test_calls_of_another_group_do_not_count(other):
    peer = Rank(1).calls("all_reduce", group=other, seq=3).calls("all_reduce", group=other, seq=4)
    assert not arrived(peer)


def test_a_rank_whose_process_is_stopped_in_a_collective_takes_no_part_in_it():
    assert not arrived(Rank(1).waits("all_reduce", group=PAIR, seq=3).stops(3.0))
    assert arrived(Rank(1).calls("all_reduce", group=PAIR, seq=3).stops(3.0))


def test_a_call_on_meta_tensors_never_reaches_the_peers():
    call = Rank(1).issues("all_reduce", group=PAIR, seq=3).record.calls[-1]
    meta = replace(call, signature=replace(call.signature, device="meta"))
    recording = record(Rank(0).waits("all_reduce", group=PAIR, seq=3), Rank(1))
    ranks = {**recording.ranks, 1: replace(recording.ranks[1], calls=(meta,))}
    assert collective_of(replace(recording, ranks=ranks), call).missing_ranks == {1}


# -- whether the calls match


@pytest.mark.parametrize(
    ("state", "ops", "usual", "odd"),
    [
        (MatchState.COLLECTIVE_TYPE_MISMATCH, ("all_reduce", "barrier"), {}, {}),
        (MatchState.SIZE_OR_SYNTAX_MISMATCH, ("all_reduce",) * 2, {"shape": (10,)}, {"shape": (12,)}),
        (MatchState.COLLECTIVE_DTYPE_MISMATCH, ("all_reduce",) * 2, {"dtype": "float32"}, {"dtype": "float64"}),
        (MatchState.ARGUMENT_MISMATCH, ("all_reduce",) * 2, {"reduce_op": "sum"}, {"reduce_op": "max"}),
        (MatchState.ARGUMENT_MISMATCH, ("broadcast",) * 2, {"root": 0}, {"root": 1}),
    ],
)
def test_calls_that_do_not_match(state, ops, usual, odd):
    found = collective(*(Rank(rank).calls(ops[rank == 3], **(odd if rank == 3 else usual)) for rank in range(4)))
    assert (found.match, found.sides, found.mismatched) == (state, ((0, 1, 2), (3,)), True)


def test_calls_that_match():
    found = collective(*(Rank(rank).calls("all_reduce") for rank in range(4)))
    assert (found.match, found.sides, found.mismatched) == (MatchState.FULLY_MATCHED, ((0, 1, 2, 3),), False)
    assert (found.group, found.collective_seq_id, found.expected_ranks) == (world_group(4), 1, (0, 1, 2, 3))
    assert found.completed


def test_with_missing_ranks_the_match_is_undecided():
    found = collective(*(Rank(rank).waits("all_reduce") for rank in range(3)), Rank(3).computes())
    assert (found.match, found.missing_ranks, found.completed) == (MatchState.UNDECIDED, {3}, False)


def test_the_rank_whose_splits_fit_nobody_is_odd():
    out = {0: (1, 1, 1), 1: (1, 1, 1), 2: (2, 2, 2)}
    found = collective(
        *(Rank(r, 3).calls("all_to_all_single", in_splits=(1, 1, 1), out_splits=out[r], shape=(3,)) for r in range(3))
    )
    assert (found.match, found.odd_ranks, found.sides) == (MatchState.ARGUMENT_MISMATCH, (2,), ((0, 1), (2,)))


def test_where_no_splits_fit_no_rank_is_odd():
    found = collective(
        Rank(0, 2).calls("all_to_all_single", in_splits=(2, 1), out_splits=(2, 3), shape=(3,)),
        Rank(1, 2).calls("all_to_all_single", in_splits=(1, 2), out_splits=(3, 2), shape=(3,)),
    )
    assert (found.odd_ranks, found.sides) == ((), ((0,), (1,)))


def exchanges(sent, expected, op="all_to_all_single", **splits):
    """One all_to_all: of each rank the shapes of the tensors that it sends and that it expects."""
    return collective(
        *(
            Rank(rank, len(sent)).calls(
                op,
                signature=Signature(
                    op,
                    sent[rank],
                    ("float32",),
                    agreed=f"{op}|float32",
                    out_shapes=expected[rank],
                    **{name: value[rank] for name, value in splits.items()},
                ),
            )
            for rank in range(len(sent))
        )
    )


def test_without_splits_each_pair_exchanges_an_equal_part():
    found = exchanges([((24,),)] * 3 + [((28,),)], [((24,),)] * 3 + [((28,),)])
    assert (found.match, found.odd_ranks, found.sides) == (MatchState.ARGUMENT_MISMATCH, (3,), ((0, 1, 2), (3,)))
    assert (0, 3, 6, 7) in found.unpaired
    assert (3, 0, 7, 6) in found.unpaired
    assert len(found.unpaired) == 6


def test_what_is_sent_may_be_of_another_size_than_what_is_expected():
    """Without splits this is a mistake of all ranks: none of them is odd."""
    found = exchanges([((8,),)] * 2, [((4,),)] * 2)
    assert (found.match, found.odd_ranks) == (MatchState.ARGUMENT_MISMATCH, ())


def test_rows_of_another_width_do_not_fit():
    splits = {"in_splits": [(1, 1)] * 2, "out_splits": [(1, 1)] * 2}
    assert exchanges([((2, 8),)] * 2, [((2, 8),), ((2, 4),)], **splits).odd_ranks == (1,)


def test_lists_are_compared_pair_by_pair():
    shapes = ((2,), (3,)), ((4,), (5,))
    expected = ((2,), (4,)), ((3,), (5,))
    assert exchanges(shapes, expected, "all_to_all").match is MatchState.FULLY_MATCHED
    found = exchanges(shapes, (((2,), (4,)), ((3,), (6,))), "all_to_all")
    assert (found.match, found.unpaired, found.odd_ranks) == (MatchState.ARGUMENT_MISMATCH, ((1, 1, 5, 6),), (1,))


@pytest.mark.parametrize(
    ("sent", "expected", "splits"),
    [
        # experts: rank 0 sends 1 row to itself and 3 to rank 1, which sends 2 and 5
        (
            [((4, 8),), ((7, 8),)],
            [((3, 8),), ((8, 8),)],
            {"in_splits": [(1, 3), (2, 5)], "out_splits": [(1, 2), (3, 5)]},
        ),
        # nothing for rank 0
        (
            [((4, 8),), ((0, 8),)],
            [((0, 8),), ((4, 8),)],
            {"in_splits": [(0, 4), (0, 0)], "out_splits": [(0, 0), (4, 0)]},
        ),
        # one rank gives its splits, the other leaves them out
        ([((8,),), ((8,),)], [((8,),), ((8,),)], {"in_splits": [(4, 4), ()], "out_splits": [(4, 4), ()]}),
        # one rank gives more to itself
        ([((8,),), ((10,),)], [((8,),), ((10,),)], {"in_splits": [(), (4, 6)], "out_splits": [(), (4, 6)]}),
        # other shapes of the same size
        ([((2, 4),), ((8,),)], [((8,),), ((4, 2),)], {}),
    ],
)
def test_sizes_that_fit_match(sent, expected, splits):
    found = exchanges(sent, expected, **splits)
    assert (found.match, found.mismatched) == (MatchState.FULLY_MATCHED, False)


# -- which rank waits for which


@pytest.mark.parametrize(
    ("op", "direction", "needed_by_root", "needed_by_others"),
    [
        ("broadcast", Direction.FROM_ROOT, set(), {2}),
        ("scatter", Direction.FROM_ROOT, set(), {2}),
        ("reduce", Direction.TO_ROOT, {0, 1}, set()),
        ("gather", Direction.TO_ROOT, {0, 1}, set()),
        ("all_reduce", Direction.ALL_TO_ALL, {0, 1}, {1, 2}),
    ],
)
def test_which_ranks_a_rank_needs(op, direction, needed_by_root, needed_by_others):
    call = Rank(0, 3).calls(op, root=2).record.calls[-1]
    assert (direction_of(op), root_of(call)) == (direction, 2)
    assert needed_ranks(call, 2, frozenset({0, 1})) == needed_by_root
    assert needed_ranks(call, 0, frozenset({1, 2})) == needed_by_others


def test_the_root_is_an_index_in_the_group():
    assert root_of(Rank(1).calls("broadcast", group=group(1, 3, 5), root=2).record.calls[-1]) == 5


@pytest.mark.parametrize("root", [None, -1, 3, 10**20])
def test_an_invalid_root_is_no_rank(root):
    call = Rank(0, 3).calls("broadcast", root=root).record.calls[-1]
    assert root_of(call) is None and needed_ranks(call, 0, frozenset({1, 2})) == {1, 2}


# -- all of a recording


def test_the_collectives_of_a_recording_by_group_and_number():
    other = group(0, 1, ordinal=1)
    recording = record(
        Rank(0, 2).calls("all_reduce").calls("barrier", group=other).sends(1),
        Rank(1, 2).calls("all_reduce").calls("all_reduce"),
    )
    found = collectives(recording)
    places = {(key, seq): set(one.calls) for key, of_group in found.items() for seq, one in of_group.items()}
    world = world_group(2).key
    assert places == {(world, 1): {0, 1}, (world, 2): {1}, (other.key, 1): {0}}
    assert collectives(recording) is found and collectives(Recording(0, {})) == {}


def test_a_send_and_its_receive_have_the_same_key():
    send = Rank(0, 2).sends(1).record.calls[-1]
    receive = Rank(1, 2).receives(0).record.calls[-1]
    numbered = [replace(call, turn=4) for call in (send, receive)]
    assert message_key(numbered[0], 0, 7) == message_key(numbered[1], 1, 7) == (7, 0, 1, 0, 4)
    assert message_key(replace(numbered[1], peer=-1), 1, 7) is None  # a receive from any rank
    assert message_key(replace(send, turn=0), 0, 7) is None


def test_a_reduction_that_is_not_known_is_no_mismatch():
    """Where C++ is called directly, nothing says how it reduces. Everything else is compared."""

    def signature(elements: int, reduction: str | None) -> Signature:
        agreed = f"all_reduce|{elements} torch.float32 |{reduction or UNKNOWN_REDUCTION}"
        return Signature("all_reduce", ((elements,),), ("float32",), reduction, agreed=agreed)

    def of(*signatures: Signature) -> Collective:
        return collective(*(Rank(n).calls("all_reduce", group=PAIR, signature=one) for n, one in enumerate(signatures)))

    assert not of(signature(4, "sum"), signature(4, None)).mismatched
    assert of(signature(4, "sum"), signature(4, None)).match is MatchState.FULLY_MATCHED
    assert of(signature(4, "sum"), signature(5, None)).mismatched
    assert of(signature(4, "sum"), signature(4, "max")).mismatched
