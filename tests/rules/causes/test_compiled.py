"""Ranks that torch.compile treated differently: named where the calls differ from there on, and only there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.calls import Site
from ddpnb.recording.events.runs import MOST_COMPILATIONS
from ddpnb.recording.stacks import Frame
from tests.rules.recordings import TORCH_FRAME, Rank, diagnose, group, line, only_finding, record

FORWARD, OTHER, LOOP = line(10, "forward"), line(30, "evaluate"), line(40)
REST = Site(FORWARD.file, 14, "forward")
SIZE = "0/0: tensor 'x' size mismatch at index 0. expected 12, actual 24"


def compiles(rank, site=FORWARD, number=0, **facts):
    return rank.phase("compilation", facts.pop("state", "done"), site, compile_id=f"3/{number}", **facts)


def trained(rank, steps=3, world=2):
    """Compiled ``forward``, and ran its two collectives and one of the loop so often."""
    one = compiles(Rank(rank, world))
    for _ in range(steps):
        one.calls("all_reduce", FORWARD, reduce_op="sum").calls("all_reduce", FORWARD, reduce_op="max").calls(
            "barrier", LOOP
        )
    return one


def then(rank, reduce_op, site=FORWARD, op="all_reduce", **more):
    return rank.waits(op, site, idle=5, **({"reduce_op": reduce_op} if op == "all_reduce" else {}), **more)


def test_a_rank_that_compiled_again_and_calls_something_else():
    found = only_finding(
        record(then(trained(0), "sum"), then(compiles(trained(1), number=1, reason=SIZE, misses=1), "max"))
    )
    assert (found.code, found.culprits, found.waiting, found.certainty) == ("DDP319", (1,), (0,), "likely")
    assert found.where[0] == (1, FORWARD)


def test_the_guard_decides_the_remedy():
    found = only_finding(
        record(then(trained(0), "sum"), then(compiles(trained(1), number=1, reason="0/0: scale == 1"), "max"))
    )
    assert found.code == "DDP319" and "same value on all ranks" in found.remedy and "dynamic" not in found.remedy


@pytest.mark.parametrize("alone", [(1,), (0, 1, 3)])
def test_the_fewer_ranks_are_named(alone):
    ranks = (
        then(compiles(trained(r, world=4), number=1), "max") if r in alone else then(trained(r, world=4), "sum")
        for r in range(4)
    )
    found = only_finding(record(*ranks))
    assert (found.code, found.culprits) == ("DDP319", (1,) if alone == (1,) else (2,))
    assert found.summary.startswith("Rank 1 compiled" if alone == (1,) else "Ranks 0, 1 and 3 compiled")


def test_what_was_compiled_alike_is_no_cause():
    found = only_finding(
        record(then(compiles(trained(0), number=1), "sum"), then(compiles(trained(1), number=1), "max"))
    )
    assert found.code == "DDP305" and not any("compiled" in text for text in found.evidence)


def test_a_graph_with_the_same_calls_is_no_cause():
    """It compiled again for a smaller batch, finished that step, and then left out the barrier."""
    other = compiles(trained(1), number=1)
    other.calls("all_reduce", FORWARD, reduce_op="sum").calls("all_reduce", FORWARD, reduce_op="max")
    one = trained(0).calls("all_reduce", FORWARD, reduce_op="sum").calls("all_reduce", FORWARD, reduce_op="max")
    found = only_finding(record(then(one, "", LOOP, "barrier"), then(other, "sum", OTHER)))
    assert found.code != "DDP319" and not any("compiled" in text for text in found.evidence)


def test_a_compilation_a_whole_turn_ago_is_no_cause():
    def steps(rank, *numbers):
        one = Rank(rank, 2)
        for number in numbers:
            one = compiles(one, number=number) if number is not None else one
            one.calls("all_reduce", FORWARD, reduce_op="sum").calls("all_reduce", FORWARD, reduce_op="max")
        return one

    found = only_finding(record(then(steps(0, 0, *[None] * 4), "sum"), then(steps(1, 0, None, 1, None, None), "max")))
    assert found.code == "DDP305"


def test_what_all_compiled_since_hides_nothing():
    ranks = []
    for rank, reduce_op in enumerate(("sum", "max")):
        one = compiles(trained(rank), number=1, reason=SIZE) if rank else trained(rank)
        ranks.append(then(compiles(one, OTHER), reduce_op))
    found = only_finding(record(*ranks))
    assert (found.code, found.culprits) == ("DDP319", (1,)) and "compiled forward" in found.summary


@pytest.mark.parametrize("calls", [True, False])
def test_the_last_batch_is_smaller(calls):
    """It compiled again for it, and is behind the loop, the other one is not; or its new graph has no collectives."""
    one, other = (compiles(Rank(number, 2)) for number in (0, 1))
    for rank in (one, other):
        for _ in range(4):
            rank.calls("all_reduce", FORWARD, reduce_op="sum").calls("all_reduce", FORWARD, reduce_op="max")
    compiles(other, number=1, reason=SIZE)
    for rank in (one, other) if calls else ():
        rank.calls("all_reduce", FORWARD, reduce_op="sum").calls("all_reduce", FORWARD, reduce_op="max")
    found = only_finding(record(then(one, "sum"), then(other, "", LOOP, "barrier")))
    assert (found.code == "DDP319") == (not calls)


def test_an_old_compilation_is_no_cause():
    other = compiles(trained(1), number=1)
    for _ in range(2):
        other.calls("all_reduce", FORWARD, reduce_op="sum").calls("all_reduce", FORWARD, reduce_op="max").calls(
            "barrier", LOOP
        )
    found = only_finding(record(then(trained(0, steps=5), "sum"), then(other, "max")))
    assert found.code == "DDP305"


def test_another_size_is_why_it_compiled_again():
    found = only_finding(
        record(then(trained(0), "sum"), then(compiles(trained(1), number=1, reason=SIZE), "sum", shape=(8,)))
    )
    assert (found.code, found.culprits) == ("DDP303", (1,))
    assert any("Rank 1 compiled forward" in text and "expected 12, actual 24" in text for text in found.evidence)


def test_a_function_that_others_never_called_is_no_matter_of_the_compiler():
    found = only_finding(record(then(trained(0), "sum"), then(compiles(trained(1), OTHER), "max", OTHER)))
    assert found.code != "DDP319"


def test_a_graph_that_broke_on_one_rank():
    breaks = [{"file": FORWARD.file, "line": 13, "why": "generic_jump TensorVariable()"}]
    rest = compiles(compiles(trained(1).calls("all_reduce", FORWARD, reduce_op="sum"), number=1, breaks=breaks), REST)
    one = trained(0).calls("all_reduce", FORWARD, reduce_op="sum")
    found = only_finding(record(then(one, "max"), then(rest, "min", REST)))
    assert (found.code, found.culprits) == ("DDP319", (1,))
    assert found.where[:2] == ((1, Site(FORWARD.file, 13, "forward")), (1, FORWARD))
    assert f"broke the graph of forward at {FORWARD.file}:13" in found.summary
    assert any("a branch on the value of a tensor" in text for text in found.evidence)


BACKWARD = Frame("/venv/lib/torch/autograd/graph.py", 800, "_engine_run_backward", user=False)


@pytest.mark.parametrize("reduce_op", ["max", "sum"])
def test_the_backward_of_a_graph_that_one_rank_compiled(reduce_op):
    """It is run where the user calls backward(); DDP makes its calls there too, and the same ones in each step."""
    line_of = line(42)

    def steps(rank, times=3):
        one = compiles(Rank(rank, 2))
        for _ in range(times):
            one.calls("all_reduce", line(41), reduce_op="sum").calls("all_reduce", line_of, reduce_op="sum").calls(
                "barrier", LOOP
            )
        return one

    other = compiles(steps(1), number=1, reason=SIZE).calls("all_reduce", line(41), reduce_op="sum")
    other = then(other, reduce_op, line_of).has_stack(Frame(line_of.file, line_of.line, "main"), BACKWARD, TORCH_FRAME)
    found = only_finding(
        record(then(steps(0).calls("all_reduce", line(41), reduce_op="sum"), "", LOOP, "barrier"), other)
    )
    assert (found.code == "DDP319") == (reduce_op == "max")
    assert found.code != "DDP319" or found.culprits == (1,)


def test_a_function_of_a_library_is_known_by_the_line_that_calls_it():
    def called(rank):
        one = compiles(Rank(rank, 2), LOOP, library="inner")
        for _ in range(3):
            one.calls("all_reduce", LOOP, reduce_op="sum").calls("all_reduce", LOOP, reduce_op="max").calls(
                "barrier", line(41)
            )
        return one

    other = then(compiles(called(1), LOOP, 1, reason=SIZE, library="inner"), "max", LOOP)
    found = only_finding(record(then(called(0), "sum", LOOP), other))
    assert (found.code, found.culprits) == (
        "DDP319",
        (1,),
    ) and f"Rank 1 compiled what {LOOP} calls again" in found.summary


def test_the_compiler_waits_in_a_collective_of_its_own():
    own = group(0, 1, ordinal=1, label="pt2_compile_pg")
    compiling = then(
        compiles(trained(1), number=1, state="open", reason="0/0: flag == False"), "", FORWARD, "all_gather", group=own
    )
    found = only_finding(record(then(trained(0), "sum"), compiling))
    assert (found.code, found.culprits, found.waiting) == ("DDP319", (1,), (0,))
    assert "the compiler waits in all_gather" in found.summary and "set_enable_guard_collectives" in found.remedy


def test_ranks_that_each_compiled_alone_are_sides():
    found = only_finding(
        record(
            then(compiles(trained(0), REST, reason="0/0: a"), "min"),
            then(compiles(trained(1), number=1, reason="0/0: b"), "max"),
        )
    )
    assert (found.code, found.culprits, found.sides) == ("DDP319", (), ((0,), (1,)))
    assert "each in another way" in found.summary


def test_too_many_to_have_been_counted():
    many = trained(0)
    for number in range(1, MOST_COMPILATIONS):
        compiles(many, OTHER, number)
    found = only_finding(record(then(many, "sum"), then(compiles(trained(1), number=1), "max")))
    assert found.code == "DDP305"


@pytest.mark.parametrize("seconds", [1, 500])
def test_a_rank_that_compiles_is_a_straggler(seconds):
    """Its compiler may run in another process: the rank itself then does nothing."""
    late = compiles(trained(1), number=1, state="open", reason=SIZE).idles(seconds, FORWARD)
    taken = record(then(compiles(trained(0), number=1, hits=1), "sum"), late)
    began = taken.ranks[1].history[-1].began_ns
    diagnosis = diagnose(replace(taken, taken_ns=began + 90_000_000_000), 10)
    (note,) = diagnosis.findings
    assert (note.code, note.culprits, note.severity, diagnosis.outcome) == ("DDP315", (1,), "note", "ok")
    assert note.evidence[0].startswith(
        f"Rank 1 has been compiling forward ({FORWARD}) for the second time for 90.0 s, because"
    )
    assert note.evidence[1].startswith(f"Rank 0 compiled forward ({FORWARD}) for the second time")


def test_a_compilation_whose_end_was_not_recorded_is_over_with_the_next_call():
    late = compiles(trained(1), state="open").calls("barrier", LOOP).idles(60, LOOP)
    assert only_finding(record(then(trained(0).calls("barrier", LOOP), "sum"), late)).code == "DDP313"
