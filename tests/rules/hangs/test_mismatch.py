from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.calls import CallState, Signature
from ddpnb.recording.facts.mismatches import first_mismatch
from ddpnb.recording.findings import Finding, Hint
from ddpnb.recording.recording import Recording
from ddpnb.recording.stacks import Frame
from ddpnb.rules.diagnose import diagnose
from tests.rules.recordings import FILE, Rank, Script, failures, group, line, record

FENCED = CallState.FENCED


def finding(recording: Recording) -> Finding:
    (found,) = failures(recording)
    return found


def sides(recording: Recording) -> tuple[tuple[int, ...], ...]:
    found = first_mismatch(recording)
    assert found is not None
    return found.sides


# -- what is no mismatch


ONE, OTHER = group(0, 1), group(0, 1, ordinal=1)


def gathers(rank: int) -> Signature:
    return Signature("gather", ((4,),) * (1 if rank else 2), ("float32",), root=0, agreed="gather|4 float32|root 0")


@pytest.mark.parametrize(
    "ranks",
    [
        [Rank(r).calls("all_reduce", line(3)).calls("barrier") for r in range(4)],
        [Rank(0, 2).calls("all_reduce").calls("barrier"), Rank(1, 2).calls("all_reduce")],  # behind
        [Rank(r).calls("broadcast", line(5 if r else 3), root=0, state=FENCED) for r in range(4)],
        [Rank(r, 2).calls("gather", signature=gathers(r)) for r in range(2)],
        [
            Rank(0, 2).calls("all_to_all_single", shape=(4,), in_splits=(1, 3), out_splits=(1, 2)),
            Rank(1, 2).calls("all_to_all_single", shape=(7,), in_splits=(2, 5), out_splits=(3, 5)),
        ],
        [Rank(0, 2).sends(1, state=CallState.ISSUED), Rank(1, 2).receives(0, state=CallState.ISSUED)],
        [
            Rank(0, 2).calls("all_reduce", group=ONE).calls("barrier", group=OTHER),
            Rank(1, 2).calls("barrier", group=OTHER).calls("all_reduce", group=ONE),
        ],
        # Backends reduce elements, whatever their shape.
        [Rank(0, 2).calls("all_reduce", shape=(3, 4)), Rank(1, 2).calls("all_reduce", shape=(12,))],
        [Rank(0).calls("all_reduce")],
        [],
    ],
    ids=["all alike", "behind", "lines of root and leaves", "lists on the root", "splits that fit", "point to point",
         "groups of equal ranks", "another shape", "one rank", "none"],
)  # fmt: skip
def test_calls_that_agree(ranks):
    assert first_mismatch(record(*ranks, world_size=4)) is None


# -- who disagrees with whom


def test_the_majority_is_the_reference():
    recording = record(*(Rank(rank).calls("broadcast" if rank == 2 else "all_reduce", root=None) for rank in range(4)))
    assert sides(recording) == ((0, 1, 3), (2,))


def test_of_equal_sides_that_of_the_lowest_rank_is_the_reference():
    recording = record(*(Rank(rank).calls("all_reduce" if rank in (1, 3) else "barrier") for rank in range(4)))
    assert sides(recording) == ((0, 2), (1, 3))


def test_the_earliest_disagreement_counts():
    recording = record(
        Rank(0, 2).calls("all_reduce").calls("all_reduce", group=group(0, 1, ordinal=1)).calls("barrier"),
        Rank(1, 2).calls("all_reduce").calls("barrier", group=group(0, 1, ordinal=1)).calls("all_reduce"),
    )
    assert first_mismatch(recording).calls[0].group.ordinal == 1


@pytest.mark.parametrize(
    ("state", "harmful"),
    [
        (CallState.COMPLETED, False),
        (CallState.DROPPED, False),
        (FENCED, True),
        (CallState.REFUSED, True),
        (CallState.FAILED, True),
        (CallState.WAITING, True),
        (CallState.ISSUED, True),
    ],
)
def test_a_disagreement_is_harmful_if_it_stopped_anybody(state, harmful):
    recording = record(Rank(0, 2).calls("all_reduce"), Rank(1, 2).calls("barrier", state=state))
    assert first_mismatch(recording).completed is not harmful


# -- which kind


@pytest.mark.parametrize(
    ("code", "op", "usual", "odd"),
    [
        ("DDP303", "all_reduce", {"shape": (10,)}, {"shape": (12,)}),
        ("DDP304", "all_reduce", {"dtype": "float32"}, {"dtype": "float64"}),
        ("DDP305", "all_reduce", {"reduce_op": "sum"}, {"reduce_op": "max"}),
        ("DDP305", "broadcast", {"root": 0}, {"root": 1}),
        ("DDP305", "all_reduce", {"shape": (3, 4)}, {"shape": (3, 4), "layout": "strides [1, 3]"}),
    ],
)
def test_the_kind_of_disagreement(code, op, usual, odd):
    recording = record(*(Rank(r).calls(op, line(7), state=FENCED, **(odd if r == 3 else usual)) for r in range(4)))
    found = finding(recording)
    assert found.code == code
    assert (found.culprits, found.waiting) == ((3,), (0, 1, 2))
    assert found.where[0] == (3, line(7))
    assert {rank for rank, _ in found.where} == {0, 1, 2, 3}
    assert found.severity == "error"
    assert found.remedy


BRANCHES = Script(
    """
    def main(rank):
        if rank == 2:
            broadcast(x)  # odd
        else:
            all_reduce(x)  # usual
    """
)


def test_two_branches_of_one_decision_are_another_operation():
    recording = record(
        *(
            Rank(r).calls("broadcast", BRANCHES.at("odd"), root=0, state=FENCED)
            if r == 2
            else Rank(r).waits("all_reduce", BRANCHES.at("usual"))
            for r in range(4)
        ),
        script=BRANCHES,
    )
    found = finding(recording)
    assert (found.code, found.culprits, found.waiting) == ("DDP302", (2,), (0, 1, 3))
    assert found.where[0] == (2, BRANCHES.at("odd"))


def test_one_call_site_that_leads_into_two_functions_is_another_operation():
    caller = Frame(FILE, 30, "main")
    recording = record(
        Rank(0, 2).waits("all_reduce", line(5, "reduce")).has_stack(caller, Frame(FILE, 5, "reduce")),
        Rank(1, 2).waits("all_gather", line(9, "gather")).has_stack(caller, Frame(FILE, 9, "gather")),
    )
    assert finding(recording).code == "DDP302"


def test_splits_that_do_not_fit_name_the_rank_in_most_broken_pairs():
    recording = record(
        *(
            Rank(r, 3).calls(
                "all_to_all_single", line(7), in_splits=(1, 1, 1), out_splits=(1, 1, 1) if r != 1 else (2, 2, 2)
            )
            for r in range(3)
        )
    )
    found = finding(recording)
    assert (found.code, found.culprits) == ("DDP305", (1,))
    assert any("[2, 2, 2]" in text for text in found.evidence)


def test_of_one_pair_that_does_not_fit_either_end_may_be_wrong():
    splits = {1: {"in_splits": (9, 1, 1)}}
    recording = record(
        *(
            Rank(r, 3).calls(
                "all_to_all_single", line(7), **{"in_splits": (1, 1, 1), "out_splits": (1, 1, 1)} | splits.get(r, {})
            )
            for r in range(3)
        )
    )
    found = finding(recording)
    assert (found.code, found.culprits, found.sides) == ("DDP305", (), ((0,), (1,)))


def test_splits_of_wrong_length_never_raise():
    recording = record(
        Rank(0, 3).calls("all_to_all_single", in_splits=(1,), out_splits=(2,)),
        Rank(1, 3).calls("all_to_all_single", in_splits=(9, 9, 9, 9), out_splits=()),
        Rank(2, 3).calls("all_to_all_single"),
    )
    assert (finding(recording).code, finding(recording).culprits) == ("DDP305", (0,))


def test_three_kinds_of_calls_are_all_named():
    recording = record(
        Rank(0).calls("all_reduce", line(3)),
        Rank(1).calls("all_reduce", line(3)),
        Rank(2).calls("barrier", line(4)),
        Rank(3).calls("all_gather", line(5), state=FENCED),
    )
    found = finding(recording)
    assert (found.culprits, found.sides) == ((), ((0, 1), (2,), (3,)))  # two of four are no majority
    assert found.waiting == ()


def test_a_rank_whose_own_last_call_was_like_the_others_is_told_so():
    recording = record(
        Rank(0, 2).calls("all_reduce", line(7)).calls("all_reduce", line(7)),
        Rank(1, 2).calls("all_reduce", line(7)).calls("all_reduce", line(7), shape=(3,), state=FENCED),
    )
    assert any("previous call at this line" in text and "[4]" in text for text in finding(recording).evidence)


def test_a_line_from_which_a_framework_makes_many_calls_says_nothing_about_the_last_one():
    def starts(rank):
        return Rank(rank, 2).calls("barrier", line(7)).calls("all_reduce", line(7), dtype="int64")

    recording = record(
        starts(0).calls("all_reduce", line(7), shape=(), state=FENCED),
        starts(1).calls("barrier", line(7), state=FENCED),
    )
    found = finding(recording)
    assert (found.code, found.culprits, found.sides) == ("DDP302", (), ((0,), (1,)))
    assert not any("previous call" in text for text in found.evidence)


# -- a rank that skipped what the others are in

SKIP = Script(
    """
    def main(rank):
        if rank != 2:
            all_reduce(x)  # skipped
        barrier()  # next

    main(2)  # called
    """
)


def called(rank, script, mark, caller="called", above="<module>", function="main"):
    """A rank whose stack shows from where its function was called."""
    outer = script.at(caller, above)
    return rank.has_stack(Frame(outer.file, outer.line, above), Frame(script.file, script.line(mark), function))


def test_a_rank_that_is_further_on_has_skipped_a_call():
    recording = record(
        *(
            Rank(r).calls("barrier", SKIP.at("next"), state=FENCED)
            if r == 2
            else Rank(r).waits("all_reduce", SKIP.at("skipped"))
            for r in range(4)
        ),
        script=SKIP,
    )
    found = finding(recording)
    assert (found.code, found.culprits, found.waiting) == ("DDP301", (2,), (0, 1, 3))
    assert found.collective.op == "all_reduce"
    assert (2, SKIP.at("next")) in found.where
    assert (0, SKIP.at("skipped")) in found.where
    assert found.certainty == "likely"
    assert found.hint == Hint(SKIP.file, SKIP.line("skipped") - 1, "`if rank != 2` decides which ranks get there")


def test_of_two_equal_sides_with_unknown_callers_none_is_named():
    """The function may be called in a loop: then the earlier line can be the next iteration's."""
    recording = record(
        Rank(0, 2).waits("barrier", SKIP.at("next")), Rank(1, 2).waits("all_reduce", SKIP.at("skipped")), script=SKIP
    )
    found = finding(recording)
    assert (found.code, found.culprits, found.waiting, found.sides) == ("DDP301", (), (), ((0,), (1,)))


STEPS = Script(
    """
    def main():
        for x in data:
            step(x)   # call

    def step(x):
        reduce_a(x)   # a
        reduce_c(x)   # c
        if cond(x):
            return
        reduce_b(x)   # b
    """
)


def steps(number, before, last, kept=10**6):
    """A rank that called these lines of ``step``, of which the last are recorded, and is fenced at the last."""
    made = [*before, last]
    rank = Rank(number, 2).forgets(max(0, len(made) - kept))
    for seq, mark in list(enumerate(made, 1))[-kept:]:
        state = CallState.COMPLETED if seq < len(made) else FENCED
        rank.calls("all_reduce", STEPS.at(mark, "step"), shape=(ord(mark),), seq=seq, number=seq - 1, state=state)
    return called(rank, STEPS, last, "call", "main", "step")


def test_a_function_that_is_called_in_a_loop_may_come_to_an_earlier_line_again():
    """Rank 0 may have returned before b and be in the next iteration: the order of the lines proves nothing."""
    found = finding(record(steps(0, "a", "a"), steps(1, "a", "b"), script=STEPS))
    assert (found.code, found.culprits, found.sides) == ("DDP301", (), ((0,), (1,)))


ROUNDS = Script(
    """
    def main(rank):
        for step in range(20):
            if not (rank == 1 and step == 1):
                all_reduce(loss)  # reduce
            barrier()  # barrier
    """
)


def test_after_a_single_iteration_two_calls_have_not_come_in_turn():
    ranks = [Rank(n, 2).calls("all_reduce", ROUNDS.at("reduce")).calls("barrier", ROUNDS.at("barrier")) for n in (0, 1)]
    ranks[0].waits("all_reduce", ROUNDS.at("reduce"))
    ranks[1].waits("barrier", ROUNDS.at("barrier"))
    found = finding(record(*ranks, script=ROUNDS))
    assert (found.code, found.culprits, found.sides) == ("DDP301", (), ((0,), (1,)))


BROKEN_OFF = Script(
    """
    def main(rank):
        for step in range(20):
            if bad(step):
                break
            all_reduce(loss)  # looped
        barrier()  # after
    """
)


OF_ENTRIES = Script(
    """
    def main(rank):
        for step in range(20):
            for name, value in sorted(losses.items()):  # decides
                all_reduce(value)  # looped
            loss.backward()  # after
    """
)


def entries(*made, last):
    ops = {"looped": "all_reduce", "after": "all_gather"}
    ranks = []
    for number, mark in enumerate(last):
        rank = Rank(number, len(last))
        for before in made:
            rank.calls(ops[before], OF_ENTRIES.at(before))
        ranks.append(rank.calls(ops[mark], OF_ENTRIES.at(mark), state=FENCED))
    return ranks


@pytest.mark.parametrize("made", [["looped"], ["looped", "looped", "after", "looped", "looped"]])
def test_of_two_ranks_either_may_be_in_another_iteration_of_the_outer_loop(made):
    """Rank 1 left the inner loop earlier; or rank 0 left out what follows it and is in the next iteration."""
    found = finding(record(*entries(*made, last=["looped", "after"]), script=OF_ENTRIES))
    assert (found.code, found.culprits, found.sides) == ("DDP301", (), ((0,), (1,)))


def test_loaders_that_counted_tell_which_of_two_ranks_left_the_inner_loop_earlier():
    ranks = entries("looped", last=["looped", "after"])
    for rank, batches in zip(ranks, (2, 1), strict=True):
        told = {"loader": 0, "step": 0, "batches": batches, "steps": batches, "complete": True}
        rank.phase("loader", "done", OF_ENTRIES.at("decides"), loader=0, kind="map", own=True)
        rank.phase("data loop", "done", OF_ENTRIES.at("decides"), **told)
    found = finding(record(*ranks, script=OF_ENTRIES))
    assert (found.code, found.culprits, found.waiting) == ("DDP308", (1,), (0,))


def test_a_rank_that_never_was_in_the_loop_has_skipped_the_call():
    recording = record(
        Rank(0, 2).waits("all_reduce", BROKEN_OFF.at("looped")),
        Rank(1, 2).calls("barrier", BROKEN_OFF.at("after"), state=FENCED),
        script=BROKEN_OFF,
    )
    assert finding(recording).code == "DDP301"


def test_without_a_source_the_calls_are_merely_unlike():
    recording = record(Rank(0, 2).waits("all_reduce", line(5)), Rank(1, 2).calls("barrier", line(9), state=FENCED))
    found = finding(recording)
    assert (found.code, found.culprits, found.waiting, found.sides) == ("DDP302", (), (), ((0,), (1,)))
    assert dict(found.where) == {0: line(5), 1: line(9)}


@pytest.mark.parametrize("culprit", [0, 1])
def test_of_two_ranks_the_one_that_made_the_call_differently_before_is_named(culprit):
    ranks = [Rank(n, 2).calls("all_reduce", line(5)) for n in range(2)]
    for number, rank in enumerate(ranks):
        rank.calls("all_reduce", line(5), shape=(3,) if number == culprit else (4,), state=FENCED)
    found = finding(record(*ranks))
    assert (found.code, found.culprits, found.waiting, found.sides) == ("DDP303", (culprit,), (1 - culprit,), ())
    assert any(f"Rank {culprit}'s previous call" in text for text in found.evidence)


@pytest.mark.parametrize("known", [False, True])
def test_a_call_after_a_loop_leaves_no_order(known):
    """A first validation, or a second one after a first before training: that it comes after a batch is new."""
    ranks = [Rank(n, 2) for n in range(2)]
    for rank in ranks:
        if known:
            rank.calls("barrier", line(30, "evaluate"))
        for _ in range(4):
            rank.calls("all_reduce", line(3, "train"))
    ranks[0].calls("barrier", line(30, "evaluate"), state=FENCED)
    ranks[1].calls("all_reduce", line(3, "train"), state=FENCED)
    found = finding(record(*ranks))
    assert (found.code, found.culprits, found.sides) == ("DDP302", (), ((0,), (1,)))


def test_a_line_that_makes_several_kinds_of_calls_did_not_change():
    """A wrapper broadcasts one buffer after the other from one line."""
    ranks = [Rank(n, 2) for n in range(2)]
    for rank in ranks:
        for shape in ((4,), (8,), (4,), (8,)):
            rank.calls("broadcast", line(5), shape=shape, root=0)
    ranks[0].waits("broadcast", line(5), shape=(4,), root=0)
    ranks[1].calls("broadcast", line(5), shape=(3,), root=0, state=FENCED)
    found = finding(record(*ranks))
    assert (found.code, found.culprits, found.sides) == ("DDP303", (1,), ())
    assert not any("Rank 0's previous call" in text for text in found.evidence)


def test_of_two_ranks_in_one_loop_neither_may_have_skipped_the_call():
    """Each stands at a line at which the other has been as often."""
    script = Script("""
        def main(rank):
            for step in range(9):
                if rank:
                    odd()  # other
                all_reduce(loss)  # one
                all_reduce(rate)  # two
    """)
    ranks = [Rank(0, 2).calls("all_reduce", script.at("one")), Rank(1, 2).calls("all_reduce", script.at("two"))]
    ranks[0].waits("all_reduce", script.at("two"))
    ranks[1].calls("barrier", script.at("one"), state=FENCED)
    found = finding(record(*ranks, script=script))
    assert (found.culprits, found.sides) == ((), ((0,), (1,))), found


@pytest.mark.parametrize("size", [10, 12])
def test_where_names_every_rank_of_many_sides_once(size):
    """Ten sides of one rank each; or a majority of three, and nine sides more."""
    shapes = range(1, size + 1) if size == 10 else [1, 1, 1, *range(2, size - 1)]
    found = finding(
        record(*(Rank(r, size).calls("all_reduce", line(3), shape=(s,), state=FENCED) for r, s in enumerate(shapes)))
    )
    assert sorted(rank for rank, _ in found.where) == list(range(size))


def test_sizes_that_pair_with_nobodys_are_an_argument_and_come_before_the_crash():
    """gloo ends the process in native code: that follows from the sizes."""

    def call(rows: int) -> Signature:
        shapes = ((rows * 2,),)
        return Signature("all_to_all_single", shapes, ("float32",), agreed="a2a|float32", out_shapes=shapes)

    recording = record(
        Rank(0, 3).calls("all_to_all_single", line(7), signature=call(6), state=CallState.ISSUED).dies(-6),
        Rank(1, 3).calls("all_to_all_single", line(7), signature=call(6), state=CallState.FAILED),
        Rank(2, 3).calls("all_to_all_single", line(7), signature=call(9), state=CallState.ISSUED),
    )
    first = diagnose(recording).findings[0]
    assert (first.code, first.culprits) == ("DDP305", (2,))
    assert "Rank 2 sends 6 elements to rank 0, which expects 4." in first.evidence


# -- what follows from calls that differ


def exchange(rank, sends, expects, at=7, **more):
    shapes = {"in_splits": sends, "out_splits": expects, "out_shapes": ((sum(expects),),)}
    return rank.calls("all_to_all_single", line(at), shape=(sum(sends),), **shapes, **more)


FAILED = CallState.FAILED
ENFORCED = "[enforce fail at gloo/alltoallv.cc:138] inLengthPerRank[myRank] == outLengthPerRank[myRank]."
CLOSED = "[gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:9118."


def test_the_death_of_a_rank_in_a_call_that_differs_follows_from_that():
    first = exchange(Rank(0, 2), (4, 12), (4, 4), state=FAILED).raises("RuntimeError", CLOSED, line(7))
    second = exchange(Rank(1, 2), (4, 4), (4, 4), state=CallState.ISSUED).dies(-6)
    (found,) = diagnose(record(first, second)).errors
    assert found.code == "DDP305"
    assert any(text.startswith("Rank 1 was killed (SIGABRT) in this call") for text in found.evidence)
    assert not any("Connection closed" in text for text in found.evidence)


def test_what_gloo_raises_in_a_call_that_differs_follows_from_that():
    first = exchange(Rank(0, 2), (4, 4), (4, 6), state=FAILED).raises("RuntimeError", CLOSED, line(7))
    second = exchange(Rank(1, 2), (6, 2), (4, 4), state=FAILED).raises("RuntimeError", ENFORCED, line(7))
    (found,) = diagnose(record(first, second)).errors
    assert (found.code, found.culprits) == ("DDP305", (1,))
    assert any(text.startswith("Rank 1 failed in this call: [enforce fail") for text in found.evidence)


def test_a_death_in_a_later_call_than_the_first_that_differs():
    """A rank that is sent less than it expects continues, with wrong data."""
    first, second = Rank(0, 2), Rank(1, 2)
    exchange(first, (4, 4), (4, 4)), exchange(second, (4, 4), (6, 4))
    exchange(first, (4, 12), (4, 4), at=9, state=CallState.ISSUED), exchange(second, (4, 4), (4, 4), at=9, state=FAILED)
    found = diagnose(record(first.raises("RuntimeError", CLOSED, line(9)), second.dies(-6))).errors
    assert [one.code for one in found] == ["DDP305"]
    assert any("the calls in #2 at /home/user/train.py:9 in main differ too." in text for text in found[0].evidence)


@pytest.mark.parametrize("traceback", ["", "During handling of the above exception, another exception occurred:"])
def test_a_rank_that_raised_before_its_call_differed_is_the_cause(traceback):
    other = Rank(0, 2).waits("all_reduce", line(7))
    way_out = Rank(1, 2).calls("barrier", line(12), state=FAILED if traceback else CallState.ISSUED)
    way_out.raises("ValueError", "bad batch", line(5))
    taken = record(other, way_out)
    ending = replace(taken.ranks[1].ending, traceback=traceback)
    taken = replace(taken, ranks={**taken.ranks, 1: replace(taken.ranks[1], ending=ending)})
    assert [one.code for one in diagnose(taken).errors] == ["DDP312"]
