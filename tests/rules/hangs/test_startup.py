"""Start-up that never ends: who claims what, who never came, which group was not made, and by which line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.calls import Site
from ddpnb.recording.ending import Ending
from ddpnb.recording.events.startup import InitProcessGroup
from ddpnb.recording.facts.init_facts import wrong_claims
from ddpnb.recording.facts.standings import standings
from ddpnb.recording.recording import Process, RankRecord
from ddpnb.recording.stacks import Frame
from ddpnb.rules.diagnose import diagnose as as_users_see_it
from tests.rules.recordings import Rank, Script, diagnose, group, line, record

INIT = line(5)


def only_finding(recording, settled=True):
    found = diagnose(recording)
    assert (found.outcome, found.settled) == ("hang", settled)
    (one,) = found.findings
    assert one.severity == "error"
    assert one.summary and one.remedy
    assert not set(one.culprits) & set(one.waiting)
    return one


def claiming(*claims, world_size=None, at=INIT, world=None):
    world = world or len(claims)
    return [Rank(n, world).starts(at, world_size=world_size or world, rank=claim) for n, claim in enumerate(claims)]


# -- DDP101, DDP103: claims


@pytest.mark.parametrize(
    ("claims", "culprits"),
    [
        ((0, 0, 2, 3), (1,)),
        ((3, 1, 2, 3), (0,)),
        ((0, 0, 0, 0), (1, 2, 3)),
        ((0, 1, 1, 1), (2, 3)),
        ((1, 1, 2, 3), (0,)),
    ],
    ids=str,
)
def test_ranks_that_are_claimed_twice(claims, culprits):
    found = only_finding(record(*claiming(*claims)))
    assert (found.code, found.culprits) == ("DDP103", culprits)
    assert found.waiting == tuple(n for n in range(4) if n not in culprits)
    assert dict(found.where) == dict.fromkeys(range(4), INIT)


@pytest.mark.parametrize(
    ("claims", "culprits"),
    [((0, 1, 2, 4), (3,)), ((-1, 1, 2, 3), (0,)), ((0, 1, 7, 9), (2, 3))],
    ids=str,
)
def test_ranks_that_do_not_exist(claims, culprits):
    found = only_finding(record(*claiming(*claims)))
    assert (found.code, found.culprits) == ("DDP101", culprits)
    assert found.waiting == tuple(n for n in range(4) if n not in culprits)


def test_a_numbering_that_begins_with_one_is_everybodys_mistake():
    found = only_finding(record(*claiming(1, 2, 3, 4)))
    assert (found.code, found.culprits, found.waiting) == ("DDP101", (0, 1, 2, 3), ())


def test_ranks_in_another_order_than_the_launchers_are_legal():
    """Every rank is claimed once: torch does not mind."""
    taken = record(*claiming(3, 2, 1, 0))
    assert wrong_claims(standings(taken), [0, 1, 2, 3]) == ()
    assert diagnose(taken).findings == ()


@pytest.mark.parametrize("claim", [None, "x", [], float("nan")])
def test_a_claim_that_makes_no_sense_is_the_ranks_own(claim):
    assert wrong_claims(standings(record(*claiming(0, claim))), [0, 1]) == ()


def test_a_claim_from_the_environment_is_text():
    assert only_finding(record(*claiming("0", "0"))).culprits == (1,)


def test_a_world_of_a_size_that_makes_no_sense():
    assert wrong_claims(standings(record(*claiming(0, 1, world_size="many"))), [0, 1]) == ()


# -- DDP102: ranks that never came

TURNED = Script("""
    def main(rank):
        if rank == 3:
            return   # return
        setup()   # setup


    def setup():
        init_process_group()   # init
""")


def start(rank, script=TURNED):
    rank.starts(script.at("init", "setup"))
    frames = (Frame(script.file, script.line("setup"), "main"), Frame(script.file, script.line("init"), "setup"))
    return rank.has_stack(*frames)


@pytest.mark.parametrize("gone", [(0,), (3,), (1, 2)], ids=str)
def test_ranks_that_ended_without_joining(gone):
    ranks = [Rank(n).absent().finishes() if n in gone else Rank(n).starts(INIT) for n in range(4)]
    found = only_finding(record(*ranks))
    assert (found.code, found.culprits) == ("DDP102", gone)
    assert found.waiting == tuple(n for n in range(4) if n not in gone)
    assert {site for rank, site in found.where if rank in found.waiting} == {INIT}


def test_where_it_turned_away_is_only_a_guess():
    ranks = [start(Rank(n)) for n in range(3)]
    found = only_finding(record(*ranks, Rank(3).absent().finishes(), script=TURNED))
    assert (found.code, found.culprits) == ("DDP102", (3,))
    assert 3 not in dict(found.where)  # it was seen nowhere
    assert found.certainty == "proven" and found.hint is not None
    assert found.hint.reason == "`if rank == 3: return` decides which ranks get there"


def test_the_line_where_it_was_seen_last_is_better():
    ranks = [start(Rank(n)) for n in range(3)]
    last = Rank(3).absent().phase("dataset", "done", line(77)).finishes()
    assert dict(only_finding(record(*ranks, last, script=TURNED)).where)[3] == line(77)


def test_a_rank_that_raised_before_it_joined_is_said_to_have_raised():
    ranks = [start(Rank(n)) for n in range(3)]
    found = only_of_crash(record(*ranks, Rank(3).absent().raises("KeyError", "'RANK'", line(3)), script=TURNED))
    assert found.code != "DDP102"
    assert found.culprits == (3,)


def only_of_crash(recording):
    found = diagnose(recording)
    assert found.outcome == "crash"
    return found.findings[0]


def test_a_rank_that_still_computes_may_come():
    ranks = [Rank(n).starts(INIT) for n in range(3)]
    found = diagnose(record(*ranks, Rank(3).absent().computes(line(2))))
    assert (found.errors, found.settled) == ((), False)


def test_a_rank_that_is_stuck_before_it_joins():
    ranks = [Rank(n).starts(INIT) for n in range(3)]
    found = only_finding(record(*ranks, Rank(3).absent().idles(60.0, line(2), waits_on="a file")))
    assert (found.code, found.culprits, found.waiting) == ("DDP313", (3,), (0, 1, 2))


@pytest.mark.parametrize("size", [5, 8])
def test_a_world_that_is_larger_than_what_was_launched(size):
    found = only_finding(record(*claiming(0, 1, 2, world_size=size)))
    assert (found.code, found.culprits, found.waiting) == ("DDP102", (0, 1, 2), ())
    assert f"a world of {size}" in found.summary and "3 were launched" in found.summary


# -- DDP104, DDP110: ranks that look elsewhere


def at_address(*addresses, told="", **more):
    ranks = []
    for number, address in enumerate(addresses):
        rank = Rank(number, len(addresses))
        if told:
            host, _, port = told.rpartition(":")
            rank.environment(MASTER_ADDR=host, MASTER_PORT=port)
        ranks.append(rank.starts(INIT, address=address, **more))
    return ranks


@pytest.mark.parametrize(
    ("addresses", "culprits"),
    [(("a:1", "a:2", "a:1", "a:1"), (1,)), (("a:2", "a:1", "a:1"), (0,)), (("a:1", "b:1"), ()), (("a:1", "a:2", "a:3"), ())],
    ids=str,
)  # fmt: skip
def test_ranks_that_look_for_each_other_in_different_places(addresses, culprits):
    found = only_finding(record(*at_address(*addresses)))
    assert (found.code, found.culprits) == ("DDP104", culprits)
    ranks = range(len(addresses))
    assert found.waiting == (tuple(n for n in ranks if n not in culprits) if culprits else ())
    assert found.sides == (() if culprits else tuple((n,) for n in ranks))


@pytest.mark.parametrize(("addresses", "culprits"), [(("b:9", "b:9", "a:1"), (0, 1)), (("b:9", "a:1"), (0,))], ids=str)
def test_who_looks_where_the_launcher_said_is_not_to_blame(addresses, culprits):
    found = only_finding(record(*at_address(*addresses, told="a:1")))
    assert (found.code, found.culprits) == ("DDP104", culprits)


def still(rank, seconds):
    rank._process = type(rank._process)("idle", seconds, still_s=seconds)
    return rank


def test_one_that_came_late_is_still_to_be_found_at_the_address():
    """Torch looks ever more rarely for a store that was not there."""
    taken = record(*(still(rank, 20.0) for rank in at_address("10.1.2.3:29500", "10.1.2.3:29500")))
    (start,) = taken.ranks[1].events(InitProcessGroup)
    others = tuple(one for one in taken.ranks[1].history if one is not start)
    late = replace(taken.ranks[1], history=(*others, replace(start, began_ns=start.began_ns + 40 * 10**9)))
    assert [one.code for one in diagnose(taken).errors] == ["DDP104"]
    assert diagnose(replace(taken, ranks={**taken.ranks, 1: late})).errors == ()


def test_all_came_to_one_address_and_do_not_meet():
    ranks = [still(rank, 60.0) for rank in at_address("10.1.2.3:29500", "10.1.2.3:29500")]
    found = only_finding(record(*ranks))
    assert (found.code, found.culprits, found.waiting) == ("DDP104", (0, 1), ())


def test_a_name_that_nobody_knows():
    ranks = [still(rank, 60.0) for rank in at_address("nodeX:1", "nodeX:1")]
    ranks[1].writes("[W socket.cpp] The IPv6 network addresses of (nodeX, 1) cannot be retrieved (gai error: -2)")
    found = only_finding(record(*ranks))
    assert (found.code, found.culprits, found.waiting) == ("DDP110", (1,), (0,))


def test_a_start_that_takes_a_while():
    ranks = [still(rank, 2.0) for rank in at_address("a:1", "a:1")]
    assert diagnose(record(*ranks)).errors == ()
    one_is_late = [still(at_address("a:1", "a:1")[0], 60.0), Rank(1, 2).absent().computes(line(2))]
    assert diagnose(record(*one_is_late)).errors == ()


def test_ranks_that_claim_different_ranks_of_others_are_told_apart():
    found = only_finding(record(*claiming(0, 0, 3, 3)))
    assert (found.code, found.culprits) == ("DDP103", (1, 2))
    assert found.summary == "Ranks 1 and 2 claim ranks that other processes have claimed: 0 on rank 1, 3 on rank 2."


# -- DDP108: groups


def test_groups_of_two_ranks_that_stand_in_the_same_call_are_told_by_side():
    first = Rank(0, 2).makes_group([0], line(4)).waits("all_reduce", line(9))
    second = Rank(1, 2).makes_group([1], line(5)).makes_group([0, 1], line(6), state="open")
    (found,) = diagnose(record(first, second)).errors
    assert (found.code, found.culprits, found.sides) == ("DDP108", (), ((0,), (1,)))
    assert found.summary == "The ranks' new_group calls do not match: [0] on rank 0, [1] on rank 1."
    assert found.evidence[:2] == (f"Rank 0 made [0] at {line(4)}.", f"Rank 1 made [1] at {line(5)}.")


def test_a_group_of_the_others_that_is_made_already():
    """Only the rank with other lists still stands in new_group."""
    others = [Rank(r, 3).makes_group([0, 1], line(4)).waits("all_reduce", line(9)) for r in (0, 2)]
    odd = Rank(1, 3).makes_group([1], line(5)).makes_group([0, 1, 2], line(6), state="open")
    (found,) = diagnose(record(others[0], odd, others[1])).errors
    assert (found.code, found.culprits) == ("DDP108", (1,))
    assert found.summary == "Ranks 0 and 2 created a group of [0, 1]; rank 1 does not create it."


ALL, PAIR, OTHER = [0, 1, 2, 3], [0, 1], [2, 3]


def makes(rank, world, *lists):
    """Made groups of these members, each at a line of its own, and is in the last of them."""
    made = Rank(rank, world)
    for members in lists:
        made.makes_group(
            members, line(10 * len(members) + members[0]), state="open" if members is lists[-1] else "done"
        )
    return made


TRIO = [0, 1, 2]


@pytest.mark.parametrize(
    ("ranks", "culprits", "waiting"),
    [
        ([Rank(0).finishes(), *(makes(n, 4, ALL) for n in (1, 2, 3))], (0,), (1, 2, 3)),
        ([makes(0, 4, ALL), makes(1, 4, ALL), Rank(2).finishes(), makes(3, 4, ALL)], (2,), (0, 1, 3)),
        ([makes(0, 4, [0, 1, 3]), *(makes(n, 4, ALL) for n in (1, 2, 3))], (0,), None),
        ([*(makes(n, 4, ALL) for n in (0, 1, 2)), makes(3, 4, [0, 1, 3])], (3,), None),
        ([makes(0, 2, [0, 1]), makes(1, 2, [1], [0, 1])], (0,), None),
        ([makes(0, 4, ALL), *(makes(n, 4, ALL[1:], ALL) for n in (1, 2, 3))], (0,), None),
        ([makes(0, 4, PAIR), makes(1, 4, PAIR), makes(2, 4, PAIR, OTHER), makes(3, 4, OTHER)], (3,), None),
        ([makes(0, 3, TRIO), makes(1, 3, TRIO)], (2,), (0, 1)),
    ],
    ids=["a member ends", "another ends", "another list", "another list on the last", "of two one left a group out",
         "one left a group out", "another order", "nothing is known of it"],
)  # fmt: skip
def test_a_rank_that_does_not_make_the_groups_of_the_others(ranks, culprits, waiting):
    found = only_finding(record(*ranks, world_size=ranks[0].world))
    assert (found.code, found.culprits) == ("DDP108", culprits)
    assert waiting is None or found.waiting == waiting


def test_the_decision_that_keeps_a_rank_from_making_it():
    script = Script("""
        def main(rank):
            if rank == 1:
                return   # return
            new_group([0, 1, 2])   # make
    """)
    ranks = [Rank(n, 3).makes_group([0, 1, 2], script.at("make"), state="open") for n in (0, 2)]
    found = only_finding(record(ranks[0], Rank(1, 3).finishes(), ranks[1], script=script))
    assert (found.code, found.culprits, [rank for rank, _ in found.where]) == ("DDP108", (1,), [0, 2])
    assert found.hint is not None and found.hint.reason.startswith("`if rank == 1: return`")


def test_a_rank_that_has_forgotten_its_first_groups_made_none_instead_of_another():
    """Rank 2 is missing; rank 1 has made all that the others have made, and has forgotten the first."""
    ranks = [Rank(number, 3) for number in range(3)]
    for rank in ranks:
        rank.makes_group([0, 1], line(5), name="1") if rank.rank != 1 else rank.forgets_events(2)
        rank.makes_group([0, 2], line(6), name="2")
    for rank in ranks[:2]:
        rank.makes_group([0, 1, 2], line(8), state="open", name="3")
    ranks[2].finishes()
    found = only_finding(record(*ranks))
    assert (found.code, found.culprits, found.waiting) == ("DDP108", (2,), (0, 1))


def test_groups_that_only_their_members_make_are_not_counted():
    ranks = [Rank(0, 2).makes_group([0], line(3), local=True, name="0")]
    ranks[0].makes_group([0, 1], line(8), state="open", name="1")  # torch does not count the local one
    ranks.append(Rank(1, 2).makes_group([1], line(6)).makes_group([0, 1], line(8), state="open"))
    found = only_finding(record(*ranks))
    assert (found.code, found.culprits) == ("DDP108", (0,))
    assert dict(found.where) == {0: line(8), 1: line(6)} and "group of [1]" in found.summary


def test_a_table_of_groups_that_one_rank_goes_through_the_other_way():
    ranks = [Rank(0, 2).makes_group([0, 1], line(6), state="open")]
    ranks.append(Rank(1, 2).makes_group([0], line(6)).makes_group([0, 1], line(6), state="open"))
    found = only_finding(record(*ranks))
    assert (found.code, found.culprits, found.sides) == ("DDP108", (), ((0,), (1,)))


def test_each_pair_makes_its_own_group_locally():
    """use_local_synchronization=True: only members call, each its own list."""
    ranks = [
        Rank(n)
        .makes_group(PAIR if n < 2 else OTHER, line(6), local=True)
        .waits("all_reduce", line(8), group=group(*(PAIR if n < 2 else OTHER)), idle=1.0)
        for n in range(4)
    ]
    assert diagnose(record(*ranks)).errors == ()


def test_groups_that_all_ranks_make():
    ranks = [Rank(n).makes_group(PAIR).makes_group(OTHER).calls("barrier", line(9)).finishes() for n in range(4)]
    assert diagnose(record(*ranks)).findings == ()


def test_a_group_that_all_are_just_making():
    ranks = [Rank(n).makes_group(ALL, line(6), state="open") for n in range(4)]
    assert diagnose(record(*ranks)).errors == ()


@pytest.mark.parametrize("members", [None, "0,1", [None, "x"], 7])
def test_lists_that_make_no_sense(members):
    ranks = [Rank(n).phase("new_group", "open", ranks=members, name="1").idles(60.0, line(6)) for n in range(4)]
    diagnose(record(*ranks))


def test_a_rank_that_made_an_earlier_group_at_that_line_is_pointed_there():
    """As next() of a generator that makes groups: it stops at the first group with the rank, so that the second is left out."""
    ranks = []
    for number in range(2):
        rank = Rank(number, 2).makes_group([1], line(4))
        if number == 0:
            rank.makes_group([0], line(4))
        ranks.append(rank.makes_group([0, 1], line(9), state="open").idles(5.0, line(9)))
    found = only_finding(record(*ranks))
    assert (found.code, found.culprits) == ("DDP108", (1,))
    assert found.where[:2] == ((1, line(4)), (1, line(9)))
    assert f"Rank 1 called new_group at {line(4)} for an earlier group." in found.evidence


# -- init_rpc


def in_rpc(number, world=2, address="tcp://a:1"):
    rank = Rank(number, world).absent()
    return rank._idle(1.0, INIT).phase("init_rpc", "open", INIT, world_size=world, rank=number, address=address)


def test_a_rank_that_never_comes_to_init_rpc():
    found = only_finding(record(in_rpc(0), Rank(1, 2).absent().finishes()))
    assert (found.code, found.culprits, found.waiting) == ("DDP102", (1,), (0,))
    assert found.where == ((0, INIT),)


def test_a_group_is_another_matter_than_rpc():
    """The parameter server joins no group: the trainers do so after they all have met for RPC."""
    ranks = [Rank(n, 3).absent().phase("init_rpc", "done", world_size=3, rank=n, address="a:1") for n in range(3)]
    for number in (0, 1):
        ranks[number].starts(INIT, world_size=2, rank=number, address="b:2")
    assert diagnose(record(ranks[0], ranks[1], ranks[2].idles(0.5, line(9)))).findings == ()
    late = [in_rpc(0, 3), ranks[1].computes(), in_rpc(2, 3)]
    assert diagnose(record(*late)).errors == ()


def test_a_mesh_that_its_members_alone_make():
    """Ranks 0 and 1 make one of their own, 2 and 3 another: it is called by its name, not by that of new_group."""
    ranks = [Rank(n).makes_group([n // 2 * 2], line(4), maker="DeviceMesh") for n in range(4)]
    for number in (0, 1):
        ranks[number].makes_group([0, 1], line(4), maker="DeviceMesh").waits("barrier", line(9))
    for number in (2, 3):
        ranks[number].makes_group([2, 3], line(4), state="open", maker="DeviceMesh")
    (found,) = diagnose(record(*ranks)).errors
    assert (found.code, found.sides) == ("DDP108", ((0, 1), (2, 3)))


# -- DDP102: a rank of which no process was seen


@pytest.mark.parametrize(
    "failed", [None, Ending("raised", 1, "KeyError", "1", (Frame("/x/train.py", 7, "load", user=True),))]
)
def test_a_rank_of_which_no_process_was_seen(failed):
    """It may still be started: a warning, once the others have waited for as long as patience allows."""
    taken = record(*claiming(0, 1))
    began = taken.ranks[0].history[-1].began_ns
    ranks = {0: taken.ranks[0], 1: RankRecord(1, process=Process("gone"), unjoined=failed)}

    def after(seconds):
        return as_users_see_it(replace(taken, ranks=ranks, taken_ns=began + int(seconds * 1e9)))

    assert after(5).findings == ()
    (found,) = after(12).findings
    assert (found.code, found.severity, found.certainty) == ("DDP102", "warning", "timed")
    assert (found.culprits, found.waiting) == ((1,), (0,)) and not after(12).settled
    if failed is None:
        assert "no process of it was seen" in found.summary and "(2)" in found.remedy
    else:
        assert found.where[0] == (1, Site("/x/train.py", 7, "load")) and found.remedy == "Start with the KeyError."


def test_a_rank_of_which_no_process_was_seen_while_another_one_works():
    """That one may start it."""
    ranks = claiming(0, 1, world=3)
    taken = record(ranks[0], Rank(1, 3).absent().computes(line(9)), world_size=3)
    later = replace(
        taken,
        ranks={**taken.ranks, 2: RankRecord(2, process=Process("gone"))},
        taken_ns=taken.ranks[0].history[-1].began_ns + 10**11,
    )
    assert [one.code for one in diagnose(later).findings] == ["DDP315"]
