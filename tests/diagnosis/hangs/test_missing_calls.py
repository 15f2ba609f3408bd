"""Waits that the graph proves to be for ever, as the diagnosis of a whole Recording gives them."""

from __future__ import annotations

import pytest

from ddpnb.diagnosis.diagnose import diagnose
from ddpnb.model.calls import CallState
from ddpnb.model.findings import Finding, Hint
from ddpnb.model.recording import Recording
from ddpnb.model.stacks import Frame
from tests.diagnosis.recordings import FILE, Rank, Script, group, line, record, world_group


def only_finding(recording: Recording) -> Finding:
    found = diagnose(recording)
    assert found.outcome == "hang"
    assert found.settled
    assert len(found.findings) == 1, [one.summary for one in found.findings]
    return found.findings[0]


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


def test_a_rank_that_returned_early():
    recording = record(*(Rank(r).finishes() if r == 1 else Rank(r).waits("all_reduce", line(7)) for r in range(4)))
    found = only_finding(recording)
    assert (found.code, found.culprits, found.waiting) == ("DDP301", (1,), (0, 2, 3))


def test_a_rank_that_left_by_sys_exit_0_is_the_culprit_too():
    recording = record(Rank(0, 2).waits("all_reduce", line(7)), Rank(1, 2).exits(0))
    assert only_finding(recording).culprits == (1,)


def test_one_asynchronous_call_less():
    """The ranks stand at wait(), not at the calls."""
    ranks = []
    for number in range(4):
        rank = Rank(number).calls("all_reduce", line(5)).calls("all_reduce", line(5))
        ranks.append(rank.finishes() if number == 3 else rank.waits("all_reduce", line(5)).idles(0.5, line(8)))
    found = only_finding(record(*ranks))
    assert found.culprits == (3,)
    assert (0, line(8)) in found.where


def test_a_broadcast_that_its_root_never_makes():
    recording = record(Rank(0).finishes(), *(Rank(rank).waits("broadcast", line(5), root=0) for rank in (1, 2, 3)))
    found = only_finding(recording)
    assert (found.code, found.culprits, found.waiting) == ("DDP301", (0,), (1, 2, 3))


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


def test_a_member_that_goes_past_a_call_of_a_small_group():
    script = Script(
        """
        def main(rank):
            if rank == 1:
                all_reduce(x, group=pair)  # pair
            barrier()  # barrier

        main(1)  # called
        """
    )
    pair = group(0, 1)
    ranks = [
        Rank(r).waits("all_reduce", script.at("pair"), group=pair) if r == 1 else Rank(r).waits("barrier", script.at("barrier"))
        for r in range(4)
    ]  # fmt: skip
    for rank, mark in zip(ranks, ("barrier", "pair", "barrier", "barrier"), strict=True):
        rank.has_stack(Frame(FILE, script.line("called"), "<module>"), Frame(FILE, script.line(mark), "main"))
    found = only_finding(record(*ranks, script=script))
    assert found.code == "DDP301"
    assert 0 in found.culprits
    assert 1 in found.waiting
    assert found.collective.group == pair


# -- DDP308: a loop that ended earlier

LOOP = Script(
    """
    def main(rank):
        for batch in batches:
            all_reduce(loss)  # looped
    """
)


def test_a_rank_with_fewer_batches():
    ranks = []
    for number in range(4):
        rank = Rank(number).calls("all_reduce", LOOP.at("looped")).calls("all_reduce", LOOP.at("looped"))
        ranks.append(rank.finishes() if number == 2 else rank.waits("all_reduce", LOOP.at("looped")))
    found = only_finding(record(*ranks, script=LOOP))
    assert (found.code, found.name) == ("DDP308", "uneven-iterations")
    assert (found.culprits, found.waiting) == ((2,), (0, 1, 3))
    assert found.collective.site == LOOP.at("looped")


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ((), "after all_reduce #4000 of this group, at least 3 of them at that line."),
        (("barrier",), "after barrier #4000 of this group, at least 2 of them at that line."),
    ],
)
def test_calls_that_are_older_than_the_recording_are_not_left_out_of_a_number(others, said):
    """A rank keeps its last calls only: their number is not that of the calls that it made."""
    ranks = []
    for number in range(2):
        rank = Rank(number, 2).forgets(3997)
        for seq, op in enumerate(("all_reduce", "all_reduce", *(others or ("all_reduce",))), 3998):
            rank.calls(op, LOOP.at("looped") if op == "all_reduce" else line(50), seq=seq, number=seq - 1)
        ranks.append(rank)
    waiting = ranks[0].waits("all_reduce", LOOP.at("looped"), seq=4001, number=4000)
    found = only_finding(record(waiting, ranks[1].finishes(), script=LOOP))
    (evidence,) = [text for text in found.evidence if "finished" in text]
    assert evidence == f"Rank 1 finished {said}"


ROUNDS = Script(
    """
    def main(rank):
        for batch in batches:   # loop
            if broken(model(batch)):
                continue  # next
            loss.backward()  # looped
    """
)


@pytest.mark.parametrize("forwards", [3, 2, 0])
def test_an_iteration_that_may_have_been_left_out_is_no_shorter_loop(forwards):
    """The source has a way around the call: that the loop was shorter is not known. It may be neither."""
    waits = Rank(0, 2).calls("all_reduce", ROUNDS.at("looped")).calls("all_reduce", ROUNDS.at("looped"))
    ends = Rank(1, 2).calls("all_reduce", ROUNDS.at("looped")).calls("all_reduce", ROUNDS.at("looped")).finishes()
    waits.waits("all_reduce", ROUNDS.at("looped")).has_run_forward(3 if forwards else 0)
    found = only_finding(record(waits, ends.has_run_forward(forwards), script=ROUNDS))
    assert (found.code, found.culprits, dict(found.where)[1]) == ("DDP301", (1,), ROUNDS.at("looped"))


EPOCHS = Script(
    """
    def main(rank):
        for epoch in range(epochs):
            for batch in loader:   # inner
                if odd(batch):
                    continue
                all_reduce(loss)  # looped
    """
)


@pytest.mark.parametrize(("batches", "code"), [((2, 2), "DDP301"), ((2, 1), "DDP308")])
def test_loaders_that_counted_their_batches_tell_whether_the_loop_was_shorter(batches, code):
    ranks = []
    for number in range(2):
        rank = Rank(number, 2)
        for _ in range(batches[number]):
            rank.calls("all_reduce", EPOCHS.at("looped"))
        told = {"loader": 0, "step": 0, "batches": batches[number], "steps": batches[number], "complete": True}
        rank.phase("loader", "done", EPOCHS.at("inner"), loader=0, kind="map", own=True)
        ranks.append(rank.phase("data loop", "done", EPOCHS.at("inner"), **told))
    ranks[0].phase("data loop", "open", EPOCHS.at("inner"), loader=0, step=2).waits("all_reduce", EPOCHS.at("looped"))
    found = diagnose(record(ranks[0], ranks[1].finishes(), script=EPOCHS)).findings[0]
    assert (found.code, dict(found.where)[1]) == (code, EPOCHS.at("looped"))


def test_a_return_from_within_the_loop_is_no_uneven_loop():
    script = Script(
        """
        def main(rank):
            for batch in batches:
                if bad(batch):
                    return  # return
                all_reduce(loss)  # looped
        """
    )
    recording = record(
        Rank(0, 2).calls("all_reduce", script.at("looped")).waits("all_reduce", script.at("looped")),
        Rank(1, 2).calls("all_reduce", script.at("looped")).finishes(),
        script=script,
    )
    found = only_finding(recording)
    assert (found.code, found.culprits) == ("DDP301", (1,))
    reason = "`return` if bad(batch) decides which ranks get there"
    assert found.hint == Hint(script.file, script.line("return"), reason)
    assert dict(found.where)[1] == script.at("looped")


# -- DDP306: calls of several groups, crossed


def test_two_groups_in_two_orders():
    one, other = group(0, 1), group(0, 1, ordinal=1)
    recording = record(
        Rank(0).waits("all_reduce", line(7), group=one),
        Rank(1).waits("all_reduce", line(7), group=other),
        Rank(2).finishes(),
        Rank(3).finishes(),
    )
    found = only_finding(recording)
    assert (found.code, found.name) == ("DDP306", "group-order")
    assert set(found.culprits) == {0, 1}
    assert set(found.where) == {(0, line(7)), (1, line(7))}


def test_who_waits_for_a_cycle_is_not_in_it():
    pair, world = group(0, 1), world_group(4)
    recording = record(
        Rank(0).waits("all_reduce", line(5), group=world),
        Rank(1).waits("all_reduce", line(8), group=pair),
        Rank(2).waits("all_reduce", line(9), group=world),
        Rank(3).waits("all_reduce", line(9), group=world),
    )
    found = only_finding(recording)
    assert (found.code, found.culprits, found.waiting) == ("DDP306", (0, 1), (2, 3))


# -- DDP307: point to point


def test_two_ranks_that_both_receive_first():
    recording = record(
        Rank(0).waits("recv", line(5), peer=1),
        Rank(1).waits("recv", line(5), peer=0),
        Rank(2).finishes(),
        Rank(3).finishes(),
    )
    found = only_finding(recording)
    assert (found.code, found.culprits, found.waiting) == ("DDP307", (0, 1), ())
    assert set(found.where) == {(0, line(5)), (1, line(5))}


def test_a_ring_of_receives():
    recording = record(*(Rank(rank).waits("recv", line(5), peer=(rank - 1) % 4) for rank in range(4)))
    assert only_finding(recording).culprits == (0, 1, 2, 3)


def test_a_send_and_a_receive_with_unlike_tags():
    recording = record(
        Rank(0, 2).waits("send", line(5), peer=1, tag=5), Rank(1, 2).waits("recv", line(8), peer=0, tag=7)
    )
    found = only_finding(recording)
    assert found.code == "DDP307"
    assert any("tag 5" in text for text in found.evidence)
    assert any("tag 7" in text for text in found.evidence)


def test_a_receive_for_which_nobody_sends():
    recording = record(
        Rank(0).finishes(), Rank(1).finishes(), Rank(2).finishes(), Rank(3).waits("recv", line(5), peer=0)
    )
    found = only_finding(recording)
    assert (found.code, found.culprits, found.waiting) == ("DDP307", (0,), (3,))


def test_a_rank_that_waits_behind_a_receive_is_a_waiting_rank():
    recording = record(
        Rank(0, 3).finishes(),
        Rank(1, 3).waits("recv", line(5), peer=0),
        Rank(2, 3).waits("barrier", line(9), group=group(1, 2)),
    )
    found = only_finding(recording)
    assert (found.code, found.culprits, found.waiting) == ("DDP307", (0,), (1, 2))


def test_a_send_whose_work_was_thrown_away():
    recording = record(
        Rank(0, 2).sends(1, line(4), state=CallState.DROPPED).finishes(),
        Rank(1, 2).waits("recv", line(9), peer=0, idle=20.0),
    )
    found = only_finding(recording)
    assert (found.code, found.culprits, found.waiting) == ("DDP307", (0,), (1,))
    assert "discarded" in found.summary
    assert any(str(line(4)) in text for text in found.evidence)


@pytest.mark.parametrize("op", ["send", "recv"])
def test_a_peer_that_is_not_in_the_group_is_no_culprit(op):
    """The door writes -1 for it."""
    found = diagnose(record(Rank(0, 2).waits(op, line(5), peer=-1), Rank(1, 2).finishes()))
    assert all(rank in (0, 1) for one in found.findings for rank in (*one.culprits, *one.waiting))
    assert not any("rank -1" in one.summary for one in found.findings)


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


def test_a_stopped_process():
    found = only_finding(record(Rank(0, 2).waits("all_reduce", line(9)), Rank(1, 2).stops(12.0, line(4))))
    assert (found.code, found.culprits, found.waiting) == ("DDP314", (1,), (0,))
    assert "kill -CONT" in found.remedy


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


def test_a_rank_that_ended_is_to_blame_and_not_one_that_has_just_gone_elsewhere():
    """Rank 1 has been elsewhere for a second, well within patience; rank 2 will never come."""
    recording = record(Rank(0, 3).waits("all_reduce", line(9)), Rank(1, 3).idles(1.0, line(4)), Rank(2, 3).finishes())
    assert only_finding(recording).culprits == (2,)


def test_a_stuck_rank_does_not_blame_one_that_computes():
    recording = record(Rank(0, 3).waits("all_reduce", line(9)), Rank(1, 3).computes(line(4)), Rank(2, 3).finishes())
    assert only_finding(recording).culprits == (2,)


# -- DDP102: a world that never is complete


def test_a_rank_that_never_joins():
    recording = record(*(Rank(rank).starts(line(3)) for rank in range(3)), Rank(3).absent().finishes())
    found = only_finding(recording)
    assert (found.code, found.culprits, found.waiting) == ("DDP102", (3,), (0, 1, 2))
    assert (0, line(3)) in found.where


def test_a_world_that_is_larger_than_what_was_launched():
    recording = record(*(Rank(rank, 2).starts(line(3), world_size=4) for rank in range(2)))
    found = only_finding(recording)
    assert (found.code, found.culprits) == ("DDP102", (0, 1))
    assert "4" in found.summary
    assert "2 were launched" in found.summary


def test_the_one_rank_that_expects_another_world_is_the_culprit():
    recording = record(
        Rank(0, 3).starts(line(3), world_size=3),
        Rank(1, 3).starts(line(3), world_size=5),
        Rank(2, 3).starts(line(3), world_size=3),
    )
    found = only_finding(recording)
    assert (found.code, found.culprits) == ("DDP102", (1,))
    assert "5" in found.summary


# -- DDP108: groups that not all make


def test_a_group_that_one_member_does_not_make():
    recording = record(
        *(Rank(r).finishes() if r == 2 else Rank(r).makes_group([0, 1, 2], line(6), state="open") for r in (0, 1, 2)),
        Rank(3).makes_group([0, 1, 2], line(6)).finishes(),
    )
    found = only_finding(recording)
    assert (found.code, found.culprits, found.waiting) == ("DDP108", (2,), (0, 1))
    assert (0, line(6)) in found.where


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


def test_groups_made_in_another_order():
    recording = record(
        Rank(0, 3).makes_group([0, 1], line(6), state="open"),
        Rank(1, 3).makes_group([1, 2], line(6), state="open"),
        Rank(2, 3).makes_group([0, 1], line(6)).makes_group([1, 2], line(7), state="open"),
    )
    found = only_finding(recording)
    assert (found.code, found.culprits) == ("DDP108", (1,))


# -- who did it, where both sides wait


def test_a_send_that_nobody_ever_answers_and_one_that_was_answered_before():
    """Rank 1 was set up as part of a ring: its second send has no receive on rank 0, round after round."""
    strip = Rank(0, 2).sends(1, line(31), tag=1).receives(1, line(32), tag=0)
    strip.waits("send", line(34), peer=1, tag=1)
    ring = Rank(1, 2).sends(0, line(31), tag=0).receives(0, line(32), tag=1)
    ring.waits("send", line(34), peer=0, tag=1)
    found = only_finding(record(strip, ring))
    assert (found.code, found.culprits, found.waiting) == ("DDP307", (1,), (0,))


ORDERS = Script(
    """
    def main(rank):
        for step in range(6):
            if rank == 1 and step == 3:
                report()   # early
                update()   # late
            else:
                update()   # update
                report()   # report
    """
)
AVERAGE, METRICS = group(0, 1, ordinal=1), group(0, 1, ordinal=2)


def test_a_rank_that_turned_the_order_around():
    def rounds(rank):
        for _ in range(3):
            rank.calls("all_reduce", ORDERS.at("update"), group=AVERAGE)
            rank.calls("all_reduce", ORDERS.at("report"), group=METRICS)
        return rank

    ranks = (
        rounds(Rank(0, 2)).waits("all_reduce", ORDERS.at("update"), group=AVERAGE),
        rounds(Rank(1, 2)).waits("all_reduce", ORDERS.at("early"), group=METRICS),
    )
    found = only_finding(record(*ranks, script=ORDERS))
    assert found.code == "DDP306"


def test_a_rank_in_another_branch_may_still_come_to_the_call():
    """The calls stand in functions of their own: rank 1 went from report to report, and update may follow."""
    update, report = line(40, "update"), line(50, "report")

    def stands(number, mark, site, members):
        rank = Rank(number, 2)
        for _ in range(3):
            rank.calls("all_reduce", update, group=AVERAGE).calls("all_reduce", report, group=METRICS)
        rank.waits("all_reduce", site, group=members)
        return rank.has_stack(Frame(FILE, ORDERS.line(mark), "main"), Frame(FILE, site.line, site.function))

    ranks = stands(0, "update", update, AVERAGE), stands(1, "early", report, METRICS)
    found = only_finding(record(*ranks, script=ORDERS))
    assert (found.code, found.culprits, found.waiting) == ("DDP306", (0, 1), ())


def test_a_call_of_another_group_that_may_come_in_the_next_iteration_is_not_skipped():
    """Rank 0 may have returned before b: in the next iteration's a it is behind, by the order of the lines."""
    script = Script(
        """
        def main():
            for x in data:
                step(x)   # call

        def step(x):
            reduce_a(x)   # a
            if cond(x):
                return
            reduce_b(x)   # b
        """
    )

    def stands(number, mark, members):
        rank = Rank(number, 2).calls("all_reduce", script.at("a", "step"), group=AVERAGE)
        rank.waits("all_reduce", script.at(mark, "step"), group=members)
        return rank.has_stack(Frame(FILE, script.line("call"), "main"), Frame(FILE, script.line(mark), "step"))

    found = only_finding(record(stands(0, "a", AVERAGE), stands(1, "b", METRICS), script=script))
    assert (found.code, found.culprits) == ("DDP306", (0, 1))


def test_a_rank_that_goes_on_after_an_error():
    script = Script(
        """
        def main(loader):
            for x in loader:
                try:
                    step(x)   # reduce
                except ValueError:   # handler
                    continue
        """
    )
    at = script.at("reduce")
    full = Rank(0, 2).calls("all_reduce", at).calls("all_reduce", at).waits("all_reduce", at)
    short = Rank(1, 2).calls("all_reduce", at).calls("all_reduce", at).finishes()
    found = only_finding(record(full, short, script=script))
    assert (found.code, found.culprits) == ("DDP301", (1,))
    assert dict(found.where)[1] == at


def test_a_forward_that_is_not_counted_yet_does_not_hide_a_shorter_loop():
    """The rank that waits in the broadcast of a forward has not begun to count that forward."""
    script = Script(
        """
        def main(loader):
            for x in loader:
                model(x)   # forward
        """
    )
    at = script.at("forward")
    full = Rank(0, 2).calls("broadcast", at, root=0).waits("broadcast", at, root=0).has_run_forward(1)
    short = Rank(1, 2).calls("broadcast", at, root=0).finishes().has_run_forward(1)
    found = only_finding(record(full, short, script=script))
    assert (found.code, found.culprits) == ("DDP308", (1,))


def test_the_header_of_the_loop_is_only_a_guess():
    script = Script(
        """
        def main(loader):
            for x in loader:   # loop
                step(x)   # reduce
        """
    )
    at = script.at("reduce")
    full = Rank(0, 2).calls("all_reduce", at).waits("all_reduce", at)
    short = Rank(1, 2).calls("all_reduce", at).finishes()
    found = only_finding(record(full, short, script=script))
    assert (found.code, dict(found.where)[1]) == ("DDP308", at)
    assert found.hint == Hint(script.file, script.line("loop"), "`for x in loader` sets the number of iterations")
    assert found.certainty == "likely"  # the source says that every iteration reaches that line


def looped(script, *marks, forwards=(0, 0)):
    """Rank 0 waits in its third call, rank 1 has ended after two; the frames are those of rank 0, outermost first."""
    at = script.at(marks[-1])
    ranks = [Rank(number, 2).calls("all_reduce", at).calls("all_reduce", at) for number in (0, 1)]
    ranks[0].waits("all_reduce", at).has_run_forward(forwards[0])
    ranks[0].has_stack(*(Frame(FILE, script.line(mark), "main") for mark in marks))
    return only_finding(record(ranks[0], ranks[1].finishes().has_run_forward(forwards[1]), script=script))


def test_without_a_source_no_loop_is_claimed():
    ranks = [Rank(number, 2).calls("all_reduce", line(3)) for number in (0, 1)]
    found = only_finding(record(ranks[0].waits("all_reduce", line(3)), ranks[1].finishes()))
    assert (found.code, found.culprits) == ("DDP301", (1,))


@pytest.mark.parametrize(
    ("text", "marks", "code"),
    [
        ("for x in loader:\n    with suppress(E):\n        loss.backward()   # b", ["b"], "DDP301"),
        ("for x in loader:\n    if bad(x):\n        continue\n    for y in x:\n        y.backward()   # b", ["b"], "DDP301"),
        ("for x in loader:\n    try:\n        step(x)   # s\n    except E:\n        pass\n\ndef step(x):\n    for y in x:\n        y()   # b",
         ["s", "b"], "DDP301"),
        ("for x in loader:\n    step(x)   # s\n\ndef step(x):\n    x.backward()   # b", ["s", "b"], "DDP308"),
    ],
)  # fmt: skip
def test_callers_and_all_loops_tell_whether_every_iteration_comes_to_the_call(text, marks, code):
    found = looped(Script(text), *marks)
    assert (found.code, found.culprits) == (code, (1,))
    assert (found.hint is not None) == (code == "DDP308")
    assert found.certainty == "proven"  # who ended after how many calls at that line was recorded


@pytest.mark.parametrize(("forwards", "code"), [((3, 3), "DDP301"), ((3, 2), "DDP308"), ((0, 0), "DDP308")])
def test_a_rank_that_began_as_many_forwards_left_no_loop_earlier(forwards, code):
    script = Script("for x in loader:\n    out = model(x)\n    loss(out).backward()   # b")
    found = looped(script, "b", forwards=forwards)
    assert (found.code, found.culprits) == (code, (1,))


def test_a_shorter_loop_is_told_by_what_was_counted():
    found = looped(Script("for x in loader:\n    x.backward()   # b"), "b")
    assert found.summary == (
        f"Rank 1 finished after 2 calls at {FILE}:2; rank 0 is blocked in one more all_reduce at {FILE}:2 in main."
    )


def test_of_several_loops_that_may_have_ended_none_is_guessed():
    found = looped(Script("for e in epochs:\n    for x in loader:\n        x.backward()   # b"), "b")
    assert found.code == "DDP308"
    assert found.hint == Hint(
        FILE, 3, "every iteration of a loop reaches this line, so the loop may have ended earlier"
    )


def test_ranks_that_ended_after_unlike_numbers_of_calls_are_told_apart():
    script = Script("for x in loader:\n    x.backward()   # b")
    ranks = [Rank(number, 3) for number in range(3)]
    for rank, calls in zip(ranks, (2, 1, 2), strict=True):
        for _ in range(calls):
            rank.calls("all_reduce", script.at("b"))
    ranks[0].waits("all_reduce", script.at("b"))
    found = only_finding(record(ranks[0], ranks[1].finishes(), ranks[2].finishes(), script=script))
    assert found.summary.startswith(f"Ranks 1 and 2 finished after 1 call on rank 1, 2 calls on rank 2, at {FILE}:2; ")


def test_no_number_is_said_of_a_line_that_is_not_among_the_recorded_calls():
    ranks = [Rank(number, 2).forgets(500).calls("broadcast", line(5), root=0, seq=501, number=500) for number in (0, 1)]
    found = only_finding(record(ranks[0].waits("all_reduce", line(3), seq=502, number=501), ranks[1].finishes()))
    assert "Rank 1 finished after broadcast #501 of this group." in found.evidence
