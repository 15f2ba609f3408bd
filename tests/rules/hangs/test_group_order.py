"""Calls of several groups in different orders, in the diagnosis of a whole Recording."""

from __future__ import annotations

from dataclasses import replace

from ddpnb.recording.stacks import Frame
from tests.rules.recordings import FILE, Rank, Script, group, line, only_finding, record, world_group


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


def test_calls_at_one_line_are_told_apart_by_their_callers():
    one, other = group(0, 1), group(0, 1, ordinal=1)

    def called_at(caller):
        return replace(line(29, "average_gradients"), via=f"{FILE}:{caller}")

    recording = record(
        Rank(0, 2).waits("all_reduce", called_at(55), group=one),
        Rank(1, 2).waits("all_reduce", called_at(56), group=other),
    )
    said = only_finding(recording).evidence
    assert said[0].endswith(f"in average_gradients, called at {FILE}:55.")
    assert said[1].endswith(f"in average_gradients, called at {FILE}:56.")


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
    assert (found.code, found.culprits, found.waiting, found.certainty) == ("DDP306", (1,), (0,), "likely")
    assert "Rank 1 made its calls in another order than before; the others did not." in found.evidence


def test_an_order_that_differs_from_the_start_has_no_history():
    ranks = (
        Rank(0, 2).waits("all_reduce", ORDERS.at("update"), group=AVERAGE),
        Rank(1, 2).waits("all_reduce", ORDERS.at("early"), group=METRICS),
    )
    found = only_finding(record(*ranks, script=ORDERS))
    assert (found.code, found.culprits, found.certainty) == ("DDP306", (0, 1), "proven")


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
    assert (found.code, found.culprits, found.waiting) == ("DDP306", (1,), (0,))


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


TEAMS = Script(
    """
    def main():
        for step in range(9):
            if value is None:
                continue  # leave
            agree()  # agree
        barrier()  # barrier
    """
)
