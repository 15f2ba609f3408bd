"""Exchanged calls, and two threads on one group: what only looks like them must pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.calls import CallState, Site
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.rules.divergence.call_swaps import concurrent_use, order_swap
from ddpnb.rules.engine import ask, rules
from ddpnb.rules.rule import findings_of
from tests.rules.recordings import FILE, MAIN_THREAD, MILLISECOND, Rank, Script, diagnose, group, line, record

A, B, C = line(11), line(12), line(13)
OTHER_THREAD = MAIN_THREAD + 1


def sequence(*sites, rank=0, world=4, **more):
    """A rank that makes calls of one signature from these lines."""
    made = Rank(rank, world)
    for site in sites:
        made.calls("all_reduce", site, **more)
    return made.finishes()


def found_in(recording):
    return ask(Snapshot(recording), [rule for rule in rules() if rule.find in (concurrent_use, order_swap)])


def of_threads(recording):
    return next(iter(findings_of(recording, concurrent_use)), None)


def recorded(usual, odd, culprits=(1,), world=4):
    return record(*(sequence(*(odd if n in culprits else usual), rank=n, world=world) for n in range(world)))


def via(site, number):
    """A call of a helper function that was called from that line."""
    return replace(site, via=f"{FILE}:{number}")


# -- DDP309


@pytest.mark.parametrize("culprits", [(0,), (1,), (2, 3)], ids=str)
def test_two_calls_the_other_way_round(culprits):
    world = 5
    recording = recorded((A, B, C), (B, A, C), culprits, world)
    (found,) = found_in(recording)
    waiting = tuple(number for number in range(world) if number not in culprits)
    assert (found.code, found.severity, found.culprits, found.waiting) == ("DDP309", "error", culprits, waiting)
    assert dict(found.where) == {number: B if number in culprits else A for number in range(world)}
    assert (found.collective.op, found.collective.seq) == ("all_reduce", 1)
    told = diagnose(recording)
    assert (told.findings[0].code, told.outcome) == ("DDP309", "divergence")


def test_of_two_ranks_neither_is_said_to_be_the_other_way_round():
    (found,) = found_in(recorded((A, B), (B, A), world=2))
    assert (found.culprits, found.waiting, found.sides) == ((), (), ((0,), (1,)))
    assert dict(found.where) == {0: A, 1: B}


def test_a_rank_of_which_nothing_is_known_may_be_the_other_way_round_too():
    ranks = [sequence(*((B, A) if n == 1 else (A, B)), rank=n) for n in range(3)]
    (found,) = found_in(record(*ranks, world_size=4))
    assert (found.culprits, found.sides) == ((), ((0, 2), (1,)))


@pytest.mark.parametrize("others", [1, 3])
def test_ranks_that_make_other_calls_there_are_on_neither_side(others):
    """They neither make an exchange of two ranks a majority, nor are they said to be at a line where they were not."""
    ranks = [sequence(A, B, rank=0, world=2 + others), sequence(B, A, rank=1, world=2 + others)]
    for number in range(others):
        ranks.append(sequence(line(20 + number), line(40 + number), rank=2 + number, world=2 + others))
    (found,) = found_in(record(*ranks))
    assert (found.code, found.culprits, found.sides) == ("DDP309", (), ((0,), (1,)))
    assert found.where == ((0, A), (1, B))
    assert "rank 2" not in " ".join((found.summary, *found.evidence))
    assert not any("source" in text for text in found.evidence)


def test_an_exchange_over_some_distance():
    (found,) = found_in(recorded((A, C, C, C, B), (B, C, C, C, A)))
    assert (found.code, found.culprits) == ("DDP309", (1,))
    assert [text.split(":")[0] for text in found.evidence] == [
        "The calls have the same signature, so their data was mixed silently.",
        "all_reduce #1",
        "all_reduce #5",
    ]


def test_calls_of_one_helper_that_is_called_the_other_way_round():
    one, other = via(A, 31), via(A, 32)
    (found,) = found_in(recorded((one, other), (other, one)))
    assert (found.code, found.culprits) == ("DDP309", (1,))
    assert all(f"{FILE}:31" in text and f"{FILE}:32" in text for text in found.evidence[1:])


BRANCHES = Script("""
    def step(labelled):
        if labelled:
            log_loss = reduce_mean(loss)        # 1
            log_conf = reduce_mean(confidence)  # 2
        else:
            log_conf = reduce_mean(confidence)  # 3
            log_loss = reduce_mean(loss)        # 4
""")


@pytest.mark.parametrize("helper", [False, True])
def test_two_branches_with_the_same_calls_in_another_order(helper):
    lines = [BRANCHES.at(str(n), "step") for n in (1, 2, 3, 4)]
    sites = [replace(A, via=str(site)) for site in lines] if helper else lines
    ranks = [sequence(*sites[:2], rank=n) if n != 2 else sequence(*sites[2:], rank=n) for n in range(4)]
    (found,) = found_in(record(*ranks, script=BRANCHES))
    assert (found.code, found.culprits) == ("DDP309", (2,))
    assert found.where[:2] == ((2, lines[2]), (0, lines[0]))
    assert found.certainty == "likely" and found.hint.reason == "lines with the same text issue the same call"


def test_two_branches_with_the_same_calls_in_one_order():
    lines = [BRANCHES.at(str(n), "step") for n in (1, 2, 4, 3)]  # the last two as if they were exchanged
    ranks = [sequence(*lines[:2], rank=0, world=2), sequence(*lines[2:], rank=1, world=2)]
    assert found_in(record(*ranks, script=BRANCHES)) == []


@pytest.mark.parametrize(
    ("usual", "odd"),
    [
        ((A, B), (A, B)),
        ((A, B, A, B), (C, B, C, B)),
        ((A, A), (C, C)),
        ((A, B), (C, A)),
        ((via(A, 31), via(A, 31)), (via(A, 32), via(A, 32))),
        ((Site("?", 0, "?"), A), (A, Site("?", 0, "?"))),
    ],
    ids=[
        "no difference",
        "root and others",
        "always another line",
        "shifted",
        "called from elsewhere",
        "unknown lines",
    ],
)
def test_other_lines_alone_are_legal(usual, odd):
    assert found_in(recorded(usual, odd)) == []


def test_a_broadcast_from_different_lines_on_root_and_others():
    def make(number):
        rank = Rank(number)
        for turn in range(6):
            rank.calls("broadcast", (A if turn % 2 else B) if number == 0 else C, root=0)
        return rank.finishes()

    assert found_in(record(*(make(number) for number in range(4)))) == []


@pytest.mark.parametrize("world", [2, 3, 4])
def test_broadcasts_from_each_rank_in_turn(world):
    """Whoever is the root calls from one line, all others from another."""

    def make(number):
        rank = Rank(number, world)
        for turn in range(2 * world):
            rank.calls("broadcast", A if turn % world == number else B, root=turn % world)
        return rank.finishes()

    assert found_in(record(*(make(number) for number in range(world)))) == []


DECIDES = Script("""
    def main():
        for epoch in range(3):
            train()                                     # train
            collect(notes, epoch % world)               # collect

    def collect(notes, root):
        if rank == root:
            gather_object(notes, everything, dst=root)  # root
            return everything
        gather_object(notes, dst=root)                  # others
""")


@pytest.mark.parametrize("left", [True, False])
def test_a_line_of_the_roots_where_the_root_changes(left):
    """Without a call between them the two calls may be of one loop over a set: that is an exchange."""
    ranks = []
    for number in range(2):
        ways = [DECIDES.at("root", "collect"), DECIDES.at("others", "collect")]
        first, second = ways if number == 0 else ways[::-1]
        rank = Rank(number, 2).calls("all_gather", first)
        if left:
            rank.calls("all_reduce", DECIDES.at("train"))
        ranks.append(rank.calls("all_gather", second).finishes())
    found = found_in(record(*ranks, script=DECIDES))
    assert [one.code for one in found] == ([] if left else ["DDP309"])


def test_two_broadcasts_of_which_the_root_has_two_lines_and_the_others_one():
    """The root sends from two lines, the others receive in a loop."""
    assert found_in(recorded((C, C), (A, B), culprits=(0,))) == []


def test_a_rank_that_skipped_a_call_is_shifted_not_exchanged():
    """It ends unevenly: that is another finding's matter."""
    ranks = [sequence(A, B, A, B, rank=n) for n in (0, 2, 3)] + [sequence(B, A, B, rank=1)]
    assert found_in(record(*ranks)) == []


def test_an_exchange_that_lies_too_far_apart_is_not_looked_for():
    assert found_in(recorded((A, *[C] * 80, B), (B, *[C] * 80, A))) == []


def test_groups_have_sequences_of_their_own():
    """Two groups of the same ranks, used in another order: each group by itself is in order."""
    one, other = group(0, 1), group(0, 1, ordinal=1)
    first = Rank(0, 2).calls("all_reduce", A, group=one).calls("all_reduce", B, group=other).finishes()
    second = Rank(1, 2).calls("all_reduce", B, group=other).calls("all_reduce", A, group=one).finishes()
    assert found_in(record(first, second)) == []


def test_what_left_the_ring_is_not_compared():
    """One rank's first calls are forgotten: the rest is paired by its number."""
    full = sequence(A, B, C, A, B, C, rank=0, world=2)
    late = Rank(1, 2).forgets(3)
    for seq, site in ((4, A), (5, B), (6, C)):
        late.calls("all_reduce", site, seq=seq, number=seq - 1)
    assert found_in(record(full, late.finishes())) == []


def test_sends_and_receives_are_not_of_the_sequence():
    one = Rank(0, 2).sends(1, A).sends(1, B).finishes()
    other = Rank(1, 2).receives(0, B).receives(0, A).finishes()
    assert found_in(record(one, other)) == []


# -- DDP310


def overlapping(rank, *, device="cpu", key=None, gap=False, times=1):
    """Two threads make calls; with ``gap`` the second begins when the first is over."""
    made = Rank(rank).calls("all_reduce", A)
    for _ in range(times):
        made.calls("all_reduce", B, group=key)
        made.calls("all_reduce", C, thread=OTHER_THREAD, group=key)
    one, other = made._calls[-2:]
    one = replace(one, done_ns=other.entered_ns + (-1 if gap else MILLISECOND))
    made._calls[-2:] = [
        replace(call, signature=replace(call.signature, device=device)) for call in (one, other)
    ]  # fmt: skip
    return made.finishes()


def usual(rank):
    return sequence(A, B, C, rank=rank)


@pytest.mark.parametrize("culprits", [(0,), (2,), (0, 1, 2, 3)], ids=str)
def test_two_threads_at_the_same_time(culprits):
    recording = record(*(overlapping(n) if n in culprits else usual(n) for n in range(4)))
    (found,) = found_in(recording)
    assert (found.code, found.culprits) == ("DDP310", culprits)
    assert found.waiting == tuple(n for n in range(4) if n not in culprits)
    assert found.where == tuple((n, C) for n in culprits)
    assert "two threads" in found.evidence[0]
    assert found.severity == "warning"  # the calls have met as they should


def test_two_threads_whose_calls_met_in_different_orders():
    ranks = [overlapping(n) for n in range(4)]
    ranks[3] = sequence(A, C, B, rank=3)
    (found,) = found_in(record(*ranks))
    assert (found.code, found.severity, found.culprits) == ("DDP310", "error", (0, 1, 2))


def test_a_communication_hook_goes_on_in_a_thread_of_gloos():
    """PowerSGD makes its second call when the first is done."""

    def compresses(number, at, hooked=True):
        made = Rank(number).calls("all_reduce", A)
        if hooked:
            made.event("comm hook", hook="torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook.powerSGD_hook")
        made.issues("all_reduce", B).calls("all_reduce", at, thread=OTHER_THREAD)
        return made.finishes()

    assert of_threads(record(*(compresses(n, B) for n in range(4)))) is None
    for odd in ({"at": C}, {"at": B, "hooked": False}):
        found = of_threads(record(*(compresses(n, **odd) for n in range(4))))
        assert found.code == "DDP310"


def test_two_threads_one_of_which_still_waits():
    ranks = [Rank(n).calls("all_reduce", A) for n in range(4)]
    for rank in ranks:
        rank.calls("all_reduce", B, thread=OTHER_THREAD, state=CallState.ISSUED).waits("all_reduce", C)
    found = of_threads(record(*ranks))
    assert (found.code, found.severity, found.culprits) == ("DDP310", "error", (0, 1, 2, 3))


def test_an_asynchronous_checkpoint_on_the_group_of_the_training():
    """The other thread is one of torch's, at no line of the program."""
    ranks = [Rank(n).calls("all_reduce", A).issues("barrier", B) for n in range(4)]
    for rank in ranks:
        thread = Site("?", 0, "?", library="torch.distributed.checkpoint")
        rank.waits("all_gather", thread, thread=OTHER_THREAD)
    found = of_threads(record(*ranks))
    assert (found.code, found.where) == ("DDP310", tuple((n, B) for n in range(4)))
    assert f"barrier #2 at {B} and all_gather #3 in a thread of torch.distributed.checkpoint" in found.evidence[0]
    assert 'new_group(backend="gloo")' in found.remedy and "process_group=" in found.remedy


def pool(number):
    """Each call in another thread, each waited for before the next."""
    rank = Rank(number, 2)
    for thread in range(30):
        rank.calls("all_reduce", A, thread=thread)
    return rank.finishes()


def threads_with_a_group_each(number):
    rank = Rank(number, 2)
    for thread in range(2):
        rank.issues("all_reduce", A, thread=thread, group=group(0, 1, ordinal=thread))
    return rank


def messages(number):
    sent = Rank(number, 2).sends(1 - number, A, state=CallState.ISSUED)
    return sent.receives(1 - number, B, thread=OTHER_THREAD)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: overlapping(n, gap=True),
        lambda n: overlapping(n, device="cuda"),  # DDP's own calls come from autograd's threads
        pool,
        lambda n: Rank(n, 2).issues("all_reduce", A).issues("all_reduce", A).finishes(),
        threads_with_a_group_each,
        messages,
    ],
    ids=["one after the other", "of autograd on a device", "a pool", "one thread", "a group each", "messages"],
)
def test_threads_that_may_use_a_group(make):
    assert found_in(record(make(0), make(1))) == []


def test_threads_are_said_before_an_exchange():
    """The exchange is what two threads made of it."""
    ranks = [overlapping(n) for n in range(4)]
    ranks[2] = sequence(A, C, B, rank=2)
    assert [found.code for found in found_in(record(*ranks))] == ["DDP310"]


def test_a_rank_whose_threads_did_not_meet_but_use_the_group_too_is_named():
    ranks = [overlapping(0), *(overlapping(n, gap=True) for n in (1, 2)), usual(3)]
    found = of_threads(record(*ranks))
    assert (found.code, found.culprits, found.waiting) == ("DDP310", (0, 1, 2), (3,))
    assert found.evidence[0].startswith("Rank 0:")
