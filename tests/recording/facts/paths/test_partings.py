"""Programs, run as each rank in this process, and where their ranks part."""

from __future__ import annotations

import random
import sys
import textwrap
from dataclasses import replace

import pytest

from ddpnb.recording.facts.paths import frames
from ddpnb.recording.facts.paths import partings as module
from ddpnb.recording.facts.paths.partings import ComparedPaths
from ddpnb.recording.parting import Parting
from ddpnb.recording.path import MOST, A, B, Kind, Path, number, word
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.stacks import Frame
from tests.recording.facts.paths.programs import FILE, Job, run

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="no paths are recorded in Python 3.11")
HELPER = "/home/user/helper.py"


def compared(job: Job, **more) -> ComparedPaths:
    return ComparedPaths(job.paths, members=job.groups, sources={FILE: job.source}, **more)


def partings(job: Job) -> tuple[Parting, ...]:
    return compared(job).partings()


def only(job: Job) -> Parting:
    found = partings(job)
    assert len(found) == 1, found
    return found[0]


def sides(found: Parting) -> list[tuple[int, ...]]:
    return sorted(way.ranks for way in found.ways)


def way(found: Parting, rank: int):
    return next(way for way in found.ways if rank in way.ranks)


# -- decisions


def test_continue_that_skips_a_call():
    job = run(
        """
        def main(rank):
            for step in range(6):
                if rank == 1 and step == 3:  # skip
                    continue
                all_reduce()
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.site.file) == ("branch", job.line("skip"), FILE)
    assert sides(found) == [(0, 2), (1,)]
    assert found.odd == (1,)
    assert found.text == "rank == 1"
    assert way(found, 0).calls[0] == f"all_reduce #4 of default_pg at {FILE}:5"
    assert way(found, 1).calls == ()


def test_the_deciding_operand_and_how_often_it_went_so_before():
    job = run(
        """
        def main(rank):
            for step in range(6):
                if step == 3 and rank == 1:  # skip
                    continue
                all_reduce()
        """,
        3,
    )
    found = only(job)
    assert (found.site.line, found.text) == (job.line("skip"), "rank == 1")
    job = run(
        """
        def main(rank):
            for step in range(6):
                bad = step == 3 and rank == 1
                if bad:  # skip
                    continue
                all_reduce()
        """,
        3,
    )
    found = only(job)
    assert (found.site.line, found.text, found.odd) == (job.line("skip"), "bad", (1,))
    assert way(found, 1).before == {1: (0, 3)}
    assert way(found, 1).new
    assert way(found, 0).before == {0: (3, 3), 2: (3, 3)}
    assert found.harmless == ()  # the comparison is no decision


def test_an_earlier_end_of_a_loop_is_a_loop():
    job = run(
        """
        def main(rank):
            batches = [1] * (5 if rank != 2 else 3)
            for batch in batches:  # loop
                all_reduce()
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line) == ("loop", job.line("loop"))
    assert sides(found) == [(0, 1), (2,)]
    assert way(found, 2).says == "left the loop"
    assert way(found, 0).says == "entered the loop"
    assert found.odd == (2,)
    assert [one.text for one in found.harmless] == ["rank != 2"]


def test_an_earlier_end_of_a_while_loop():
    job = run(
        """
        def main(rank):
            left = 5 if rank else 3
            while left > 0:  # loop
                left -= 1
                all_reduce()
        """,
        2,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("loop", job.line("loop"), ())
    assert way(found, 0).says == "left the loop"


def test_a_break_is_a_branch():
    job = run(
        """
        def main(rank):
            for step in range(5):
                if step == 2 and rank == 0:  # stop
                    break
                all_reduce()
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("branch", job.line("stop"), (0,))


def test_a_break_leaves_the_loop_in_which_the_others_stay():
    job = run(
        """
        def main(rank):
            for step in range(5):
                if step == 2 and rank == 0:  # stop
                    break
                all_reduce()
            for step in range(2):
                broadcast()
        """,
        3,
    )
    found = only(job)
    assert (found.site.line, way(found, 0).says) == (job.line("stop"), "left the loop")
    assert found.left_loop((0,)) and not found.left_loop((1, 2))


@pytest.mark.parametrize("head", ["for step in range(8):", "while True:\n                step += 1"])
def test_a_harmless_continue_beside_a_break(head):
    """Both meet at the beginning of the loop, also if it can end in between."""
    job = run(
        f"""
        def main(rank):
            step = -1
            {head}
                if (rank, step) == (2, 5):  # skip
                    continue
                all_reduce()
                for n in range(3):
                    if rank == 0 and step % 2:  # log
                        continue
                    if step == 2:
                        break
                if rank == 0 and step % 2:
                    continue
                if step == 8:
                    break
                done = step
            all_reduce()
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("branch", job.line("skip"), (2,))
    assert job.line("log") in [one.site.line for one in found.harmless] or head.startswith("while")


def test_a_break_behind_a_with():
    """The handler of the ``with`` jumps back to it; that is no loop."""
    job = run(
        """
        from contextlib import nullcontext

        def main(rank):
            for step in range(5):
                with nullcontext():
                    error = (rank, step) == (0, 2)
                if error:  # stop
                    break
                all_reduce()
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("branch", job.line("stop"), (0,))


def test_while_else():
    job = run(
        """
        def main(rank):
            n = 0
            while n < 3:
                n += 1
                if n == 2 and rank == 1:  # stop
                    break
            else:
                all_reduce()
            all_reduce()
            all_reduce()
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("branch", job.line("stop"), (1,))


def test_an_if_on_one_rank():
    job = run(
        """
        def main(rank):
            for step in range(4):
                all_reduce()
                if rank == 0:  # only
                    broadcast()
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line) == ("branch", job.line("only"))
    assert found.odd == (0,)
    assert way(found, 0).calls == (f"broadcast #2 of default_pg at {FILE}:5",)
    assert way(found, 0).to.line == 5


def test_early_return_in_a_helper_module():
    job = run(
        """
        def main(rank):
            for step in range(4):
                mean(rank, step)
        """,
        3,
        helpers={
            "helper": """
            def mean(rank, step):
                empty = rank == 2 and step == 2
                if empty:
                    return 0
                all_reduce()
            """
        },
    )
    found = only(job)
    assert (found.kind, found.site.file, found.site.line) == ("branch", HELPER, 3)
    assert [site.line for site in found.callers][-1] == 3
    assert way(found, 2).says == "returned"
    assert way(found, 2).to.line == 4
    assert found.odd == (2,)


def test_a_skipped_call_long_before_the_hang():
    job = run(
        """
        def main(rank):
            for epoch in range(3):
                for batch in range(4):
                    all_reduce()
                losses = [] if rank == 1 and epoch == 0 else [1]
                if losses:  # empty
                    all_reduce()
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("branch", job.line("empty"), (1,))
    assert way(found, 1).says == "continued with the next iteration"


def test_conditional_expression():
    job = run(
        """
        def main(rank):
            for step in range(4):
                x = all_reduce() if step != 2 or rank else None  # here
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.text, found.odd) == ("branch", job.line("here"), "rank", (0,))


def test_the_end_of_a_function_that_the_compiler_has_put_behind_two_ways():
    job = run(
        """
        def main(rank):
            train(4 if rank == 0 else 3)

        def train(steps):
            for step in range(steps):  # loop
                all_reduce()
        """,
        2,
    )
    found = only(job)
    assert (found.kind, found.site.line) == ("loop", job.line("loop"))
    assert [one.text for one in found.harmless] == ["rank == 0"]


def test_match():
    job = run(
        """
        def main(rank):
            for step in range(4):
                kind = "skip" if (rank, step) == (1, 2) else "go"
                match kind:
                    case "skip":  # case
                        pass
                    case _:
                        all_reduce()
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("branch", job.line("case"), (1,))


def test_comprehension():
    job = run(
        """
        def main(rank):
            for step in range(3):
                found = [all_reduce() for batch in range(3) if (rank, step, batch) != (1, 1, 1)]  # here
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("branch", job.line("here"), (1,))


def test_a_tie_blames_nobody():
    job = run(
        """
        def main(rank):
            all_reduce()
            if rank % 2:  # half
                all_reduce()
            else:
                broadcast()
        """,
        4,
    )
    found = only(job)
    assert (found.site.line, sides(found), found.odd) == (job.line("half"), [(0, 2), (1, 3)], ())


def test_three_ways():
    job = run(
        """
        def main(rank):
            all_reduce()
            match rank:
                case 0:  # zero
                    all_reduce()
                case 1:
                    broadcast()
                case 2:
                    reduce = 1
        """,
        3,
    )
    assert job.line("zero") in [found.site.line for found in partings(job)]


def test_two_partings():
    job = run(
        """
        def main(rank):
            group = "left" if rank < 2 else "right"
            for step in range(4):
                all_reduce(group)
                if step == 2 and rank == 1:  # first
                    break
                if step == 1 and rank == 3:  # second
                    continue
                all_reduce(group)
        """,
        4,
        groups={"left": (0, 1), "right": (2, 3)},
    )
    found = partings(job)
    assert sorted((one.site.line, sides(one)) for one in found) == [
        (job.line("first"), [(0, 2, 3), (1,)]),  # they went so too
        (job.line("second"), [(2,), (3,)]),
    ]


def test_own_history_beats_numbers():
    """Two of three leave the loop's usual way."""
    job = run(
        """
        def main(rank):
            for step in range(9):
                skip = step == 7 and rank != 1
                if skip:  # skip
                    continue
                all_reduce()
        """,
        3,
    )
    found = only(job)
    assert (found.site.line, found.odd) == (job.line("skip"), (0, 2))


# -- harmless


@pytest.mark.parametrize(
    "body",
    [
        "if rank == 0: print_ = step",
        "x = [n for n in range(rank + step)]",
        "try:\n    1 // rank\nexcept ZeroDivisionError:\n    pass",
        "if rank == 0:\n    all_reduce()\nelse:\n    all_reduce()",
        "while rank > step: step += 1",
        "(lambda: 1)() if rank else (lambda: 2)()",
        "send(1) if rank == 0 else recv(0) if rank == 1 else None",
        "with open('/dev/null') as f:\n    if rank: f.read()",
        "all_reduce('odd') if rank in (0, 1) else None",
    ],
)
def test_harmless_differences(body):
    source = "def main(rank):\n    for step in range(5):\n{}\n        all_reduce()\n"
    job = run(source.format(textwrap.indent(body, " " * 8)), 3, groups={"odd": (0, 1)})
    assert not job.hangs
    assert partings(job) == ()
    other = run(
        source.format(textwrap.indent(body, " " * 8)) + "    if rank == 2:  # end\n        return\n    all_reduce()\n",
        3,
        groups={"odd": (0, 1)},
    )
    found = only(other)
    assert (found.kind, found.site.line, found.odd) == ("branch", other.line("end"), (2,))
    assert found.harmless


FIRST = """
from contextlib import contextmanager

@contextmanager
def rank0_first(rank, step):
    if rank != 0:
        all_reduce()
    yield
    if rank == 0:
        all_reduce()

def main(rank):
    for step in range(3):
        with rank0_first(rank, step):
            loaded = step
        {}
        all_reduce()
    all_reduce()
"""


def test_one_rank_first():
    """Both make the same calls, at different lines."""
    job = run(FIRST.format("pass"), 3)
    assert not job.hangs
    assert partings(job) == ()
    job = run(FIRST.format("if (rank, step) == (2, 1): break  # stop"), 3)
    assert job.hangs
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("branch", job.line("stop"), (2,))
    job = run(FIRST.format("pass").replace("if rank == 0:", "if rank == 0 and step != 1:"), 3)
    assert {one.site.line for one in partings(job)} <= {5, 8}  # who is first, or who does not follow


def test_a_call_that_is_made_up_for_later():
    job = run(
        """
        def main(rank):
            for step in range(5):
                if rank == 0:
                    all_reduce("a")
                extra = step
                all_reduce("b")
                if rank != 0:
                    all_reduce("a")
        """,
        2,
        groups={"a": (0, 1), "b": (0, 1)},
    )
    found = ComparedPaths(job.whole, members=job.groups).partings()
    assert found == ()


def test_no_difference_at_all():
    job = run("def main(rank):\n    for step in range(3):\n        all_reduce()\n", 3)
    assert partings(job) == ()
    assert compared(job).parting((0,), (1, 2)) is None


def test_a_rank_that_is_behind_has_not_parted():
    job = run("def main(rank):\n    for step in range(5):\n        all_reduce()\n", 3, killed={1: 3})
    assert job.hangs
    assert partings(job) == ()


def test_exception_at_once_on_all_is_no_difference():
    job = run("def main(rank):\n    all_reduce()\n    raise ValueError\n", 2)
    assert partings(job) == ()


# -- exceptions


def test_swallowed_exception():
    job = run(
        """
        def work(rank, step):
            if step == 2:
                int("x" if rank == 1 else "1")  # raises
            all_reduce()

        def main(rank):
            for step in range(5):
                try:
                    work(rank, step)
                except ValueError:  # handler
                    pass
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("exception", job.line("raises"), (1,))
    assert way(found, 1).says == f"raised ValueError, handled at {FILE}:{job.line('handler')}"
    assert sides(found) == [(0, 2), (1,)]


def test_swallowed_in_the_same_function():
    job = run(
        """
        def main(rank):
            for step in range(5):
                try:
                    int("x" if (rank, step) == (1, 2) else "1")  # raises
                    all_reduce()
                except ValueError:  # handler
                    continue
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("exception", job.line("raises"), (1,))
    assert way(found, 1).before == {1: (0, 2)} or way(found, 1).before[1][0] == 0


def test_exception_behind_a_decision_is_that_decision():
    job = run(
        """
        def check(rank, step):
            bad = (rank, step) == (1, 2)
            if bad:  # decides
                raise ValueError("bad")

        def main(rank):
            for step in range(5):
                try:
                    check(rank, step)
                    all_reduce()
                except ValueError:  # handler
                    pass
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("branch", job.line("decides"), (1,))
    assert way(found, 1).says == f"raised ValueError, handled at {FILE}:{job.line('handler')}"


def test_exception_that_ends_a_rank():
    job = run(
        """
        def inner(rank, step):
            return [1, 2, 3][rank % 2 * step]  # raises

        def main(rank):
            for step in range(5):
                inner(rank, step)
                all_reduce()
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("exception", job.line("raises"), (1,))
    assert way(found, 1).says == "raised IndexError"
    assert way(found, 0).calls[0].startswith("all_reduce #4")


def test_exceptions_that_follow_from_the_end_of_another_rank():
    job = run(
        """
        def main(rank):
            for step in range(5):
                stop = rank == 1 and step == 3
                if stop:  # decides
                    break
                if rank == 0 and step == 3:
                    broadcast()
                    raise RuntimeError("connection closed by peer")
                broadcast()
        """,
        2,
    )
    found = ComparedPaths(job.whole, members=job.groups).partings()
    assert [(one.kind, one.site.line) for one in found] == [("branch", job.line("decides"))]


@pytest.mark.parametrize("call", ["all_reduce", "all_reduce_fails"])
def test_the_same_number_elsewhere(call):
    """Both wait in a call of the same number, or have failed in it: at different lines."""
    source = """
    def main(rank):
        for step in range(6):
            stop = rank == 1 and step == 3
            if stop:  # decides
                break
            if step == 3:
                CALL()
            all_reduce()
        CALL()
    """
    job = run(source.replace("CALL", call), 3, killed={0: 4, 1: 4, 2: 4})
    if call == "all_reduce_fails":
        job = run(source.replace("CALL", call), 3)
    found = ComparedPaths(job.whole, members=job.groups).partings()
    assert [(one.kind, one.site.line, one.odd) for one in found] == [("branch", job.line("decides"), (1,))]


def test_a_collective_that_failed_is_no_difference():
    job = run(
        """
        def main(rank):
            for step in range(4):
                try:
                    if step == 3 and rank == 1:
                        all_reduce_fails()
                    else:
                        all_reduce()
                except RuntimeError:
                    return
            all_reduce()
        """,
        2,
    )
    assert [one.kind for one in ComparedPaths(job.whole, members=job.groups).partings()] == []


def test_calls_of_another_thread_in_the_same_group():
    job = run(LOOP, 2)
    words = job.paths[1].threads["MainThread"]
    shifted = [number((one >> A & MOST) + (n > 40)) if one & 15 == Kind.NUMBER else one for n, one in enumerate(words)]
    job.paths[1] = replace(job.paths[1], threads={"MainThread": tuple(shifted)})
    assert not [one for one in partings(job) if one.kind == "operation"]


def test_finally_and_with():
    job = run(
        """
        class Guard:
            def __enter__(self):
                return self
            def __exit__(self, *error):
                return True

        def main(rank):
            for step in range(5):
                try:
                    with Guard():
                        int("x" if (rank, step) == (2, 3) else "1")  # raises
                        all_reduce()
                finally:
                    done = step
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("exception", job.line("raises"), (2,))


def test_harmless_exception_then_a_parting():
    job = run(
        """
        def main(rank):
            for step in range(5):
                try:
                    {0: 1}[rank]
                except KeyError:
                    pass
                if (rank, step) == (0, 2):  # skip
                    continue
                all_reduce()
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("branch", job.line("skip"), (0,))
    assert [one.site.line for one in found.harmless] == [4]


# -- calls


def test_another_function_at_the_same_site():
    job = run(
        """
        def one():
            all_reduce()

        def other():
            pass

        def main(rank):
            for step in range(4):
                work = {1: other}.get(rank + 9 * (step != 2), one)
                work()  # site
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("call", job.line("site"), (1,))
    assert {one.says for one in found.ways} == {"called one", "called other"}


def test_decided_inside_a_library():
    job = run(
        """
        def main(rank):
            for step in range(4):
                targets = [] if (rank, step) == (1, 2) else [1]
                if not targets:  # cause
                    loss = None
                else:
                    loss = 1
                backward(loss)  # operation
                all_reduce()
        """,
        3,
        library="""
        def backward(loss):
            if loss:
                broadcast()
        """,
    )
    for path in job.paths.values():
        assert any(not code.user for code in path.codes) in (True, False)
    found = only(job)
    assert found.odd == (1,)
    assert found.site.line in (job.line("operation"), 3)
    assert [one.site.line for one in found.harmless][0] == job.line("cause")


def test_equal_decisions_but_other_operations():
    job = run(
        """
        def main(rank):
            for step in range(4):
                use = {(1, 2): broadcast}.get((rank, step), all_reduce)
                use()  # operation
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, sides(found), found.odd) == (
        "operation",
        job.line("operation"),
        [(0, 2), (1,)],
        (1,),
    )


def test_a_callback_of_python_on_one_side():
    job = run(
        """
        def callback(n):
            all_reduce()

        def main(rank):
            for step in range(4):
                list(map(callback if (rank, step) != (1, 2) else str, [1]))  # site
                all_reduce()
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("call", job.line("site"), (1,))


# -- groups and messages


def test_crossed_groups():
    job = run(
        """
        def main(rank):
            for step in range(4):
                first, second = "a", "b"
                if rank == 1 and step == 2:
                    first, second = second, first
                all_reduce(first)  # crossed
                all_reduce(second)
        """,
        2,
        groups={"a": (0, 1), "b": (0, 1)},
    )
    assert len(job.hangs) == 2
    found = only(job)
    assert (found.kind, found.site.line) == ("operation", job.line("crossed"))
    assert found.harmless[0].text == "rank == 1"


def test_crossed_groups_by_branch():
    job = run(
        """
        def main(rank):
            for step in range(4):
                if rank == 1 and step == 2:  # decides
                    all_reduce("b")
                    all_reduce("a")
                else:
                    all_reduce("a")
                    all_reduce("b")
        """,
        2,
        groups={"a": (0, 1), "b": (0, 1)},
    )
    found = only(job)
    assert (found.kind, found.site.line) == ("branch", job.line("decides"))


def test_a_subgroup():
    job = run(
        """
        def main(rank):
            group = "left" if rank < 2 else "right"
            for step in range(5):
                bad = rank == 3 and step == 2
                if not bad:  # decides
                    all_reduce(group)
                all_reduce(group)
        """,
        4,
        groups={"left": (0, 1), "right": (2, 3)},
    )
    assert sorted(job.hangs) == [2]
    found = only(job)
    assert (found.site.line, sides(found), found.odd) == (job.line("decides"), [(2,), (3,)], (3,))


def test_groups_told_by_their_names():
    job = run(
        """
        def main(rank):
            all_reduce("group [0-1]")
            if rank == 2:
                all_reduce("group [2]")
            if rank == 1:  # decides
                return
            all_reduce("group [0-1]")
            all_reduce("group [0, 2]")
        """,
        3,
        groups={"group [0-1]": (0, 1, 2), "group [2]": (2,), "group [0, 2]": (0, 2)},
    )
    found = ComparedPaths(job.paths, sources={FILE: job.source}).partings()
    assert [one.site.line for one in found] == [job.line("decides")]


def test_pipeline_roles():
    job = run(
        """
        def stage(rank, step):
            if rank > 0:  # first
                recv(rank - 1)
            bad = rank == 1 and step == 3
            if bad:  # skip
                return
            if rank < 2:
                send(rank + 1)

        def main(rank):
            for step in range(6):
                stage(rank, step)
        """,
        3,
    )
    assert list(job.hangs.values()) == ["recv"]
    found = compared(job).parting((1,), (0, 2))
    assert found is not None
    assert (found.kind, found.site.line, found.odd) == ("branch", job.line("skip"), (1,))
    assert [one.site.line for one in partings(job)] == [job.line("skip")]


def test_pipeline_without_a_fault():
    job = run(
        """
        def main(rank):
            for step in range(4):
                for warm in range(2 - rank):
                    if rank > 0:
                        recv(rank - 1)
                    if rank < 2:
                        send(rank + 1)
                for rest in range(1 + rank):
                    if rank > 0:
                        recv(rank - 1)
                    if rank < 2:
                        send(rank + 1)
        """,
        3,
    )
    assert not job.hangs
    assert partings(job) == ()


def test_server_and_worker():
    job = run(
        """
        def server():
            for step in range(6):
                broadcast()  # waits

        def worker(rank):
            for step in range(6):
                bad = rank == 2 and step == 3
                if bad:  # skip
                    continue
                broadcast()

        def main(rank):
            if rank == 0:  # role
                server()
            else:
                worker(rank)
        """,
        3,
    )
    found = compared(job).parting((2,), (0, 1))
    assert found is not None
    assert (found.kind, found.site.line, found.odd) == ("branch", job.line("skip"), (2,))


def test_a_role_that_left_its_loop():
    job = run(
        """
        def server():
            for step in range(6):
                broadcast()

        def worker():
            for step in range(6):
                if step == 4:  # left
                    break
                broadcast()

        def main(rank):
            if rank == 0:  # role
                server()
            else:
                worker()
        """,
        2,
    )
    found = compared(job).parting((1,), (0,))
    assert found is not None
    assert (found.site.line, found.odd) == (job.line("left"), (1,))


# -- generators, coroutines, recursion, decorators, exec


def test_generator():
    job = run(
        """
        def batches(rank):
            for n in range(6):
                bad = (rank, n) == (1, 3)
                if bad:  # filter
                    continue
                yield n

        def main(rank):
            for batch in batches(rank):  # loop
                all_reduce()
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("loop", job.line("loop"), (1,))
    assert job.line("filter") in [one.site.line for one in found.harmless]


def test_call_in_a_generator():
    job = run(
        """
        def batches(rank):
            for n in range(6):
                bad = (rank, n) == (1, 3)
                if not bad:  # decides
                    all_reduce()
                yield n

        def main(rank):
            for batch in batches(rank):
                all_reduce()
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("branch", job.line("decides"), (1,))


def test_coroutine():
    job = run(
        """
        async def reduce(rank, step):
            bad = (rank, step) == (1, 2)
            if bad:  # decides
                return
            all_reduce()

        async def train(rank):
            for step in range(5):
                await reduce(rank, step)

        def main(rank):
            try:
                train(rank).send(None)
            except StopIteration:
                pass
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("branch", job.line("decides"), (1,))


def test_recursion():
    job = run(
        """
        def tree(rank, depth):
            bad = (rank, depth) == (1, 2)
            if bad:  # decides
                return
            if depth:
                tree(rank, depth - 1)
                tree(rank, depth - 1)
            all_reduce()

        def main(rank):
            tree(rank, 4)
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("branch", job.line("decides"), (1,))


def test_deep_recursion():
    job = run(
        """
        def deep(rank, depth):
            if depth:
                deep(rank, depth - 1)
            else:
                all_reduce()
                if rank == 1:  # decides
                    return
                all_reduce()

        def main(rank):
            deep(rank, 850)
        """,
        3,
    )
    found = only(job)
    assert (found.site.line, found.odd, len(found.callers) > 800) == (job.line("decides"), (1,), True)


def test_decorators_and_exec():
    job = run(
        """
        def logged(function):
            def wrapper(*args):
                return function(*args)
            return wrapper

        @logged
        def reduce(rank, step):
            if (rank, step) == (1, 2):  # decides
                return
            all_reduce()

        def main(rank):
            for step in range(5):
                exec("def f(r, s):\\n    return reduce(r, s)\\nf(rank, step)", globals() | {"rank": rank, "step": step})
        """,
        3,
    )
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("branch", job.line("decides"), (1,))


# -- what was not recorded, or otherwise


def cut(job: Job, keep: dict[int, int]) -> Job:
    """The rings of ranks have been overwritten up to a call: they begin behind it with the open frames."""
    for rank, call in keep.items():
        path = job.paths[rank]
        words = path.threads["MainThread"]
        stack: list[list[int]] = []
        calls = 0
        for place, one in enumerate(words):  # noqa: B007
            kind = one & 15
            if kind in (Kind.ENTER, Kind.RESUME):
                if stack:
                    stack[-1][1] = (one >> B & MOST) - 1
                stack.append([one >> A & MOST, 0])
            elif kind in (Kind.RETURN, Kind.YIELD, Kind.UNWIND):
                stack.pop()
            elif kind == Kind.CALL:
                stack[-1][1] = (one >> A & MOST) - 1
                calls += 1
            elif kind == Kind.NUMBER and calls == call:
                break
        base = [word(Kind.BASE, len(stack)), *(word(Kind.FRAME, *frame) for frame in stack)]
        job.paths[rank] = replace(path, threads={"MainThread": (*base, *words[place + 1 :])}, forgotten=place)
    return job


LOOP = """
def reduce(rank, step):
    bad = (rank, step) == (1, 7)
    if bad:  # decides
        return
    all_reduce()

def main(rank):
    for step in range(12):
        reduce(rank, step)
        all_reduce()
"""


@pytest.mark.parametrize("keep", [{0: 4, 1: 4, 2: 4}, {0: 3, 1: 6}, {1: 2}, {0: 9}])
def test_wrapped_rings(keep):
    job = cut(run(LOOP, 3), keep)
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("branch", job.line("decides"), (1,))


def test_wrapped_behind_the_parting_says_nothing():
    job = run(
        """
        def main(rank):
            if rank == 1:
                broadcast("a")
            for step in range(9):
                all_reduce()
            if rank == 0:
                broadcast("a")
            all_reduce("a")
        """,
        2,
        groups={"a": (0, 1)},
    )
    whole = run("def main(rank):\n    for step in range(9):\n        all_reduce()\n", 2)
    assert partings(cut(whole, {0: 7, 1: 8})) == ()
    assert job.paths


def test_a_gap():
    job = run(LOOP, 3)
    for rank, path in job.paths.items():
        words = path.threads["MainThread"]
        wrapped = cut(Job({rank: path}, {}, job.source, job.groups), {rank: 5}).paths[rank].threads["MainThread"]
        place = len(words) - len(wrapped) + wrapped[0].bit_length() * 0
        assert place >= 0
        job.paths[rank] = replace(path, threads={"MainThread": (*words[:7], word(Kind.GAP), *wrapped)})
    assert (only(job).site.line, only(job).odd) == (job.line("decides"), (1,))


def test_bases_between_are_no_difference():
    job = run(LOOP, 3)
    wrapped = cut(run(LOOP, 3), {0: 5}).paths[0].threads["MainThread"]
    count = (wrapped[0] >> A & MOST) + 1
    words = job.paths[0].threads["MainThread"]
    at = len(words) - (len(wrapped) - count)
    job.paths[0] = replace(job.paths[0], threads={"MainThread": (*words[:at], *wrapped[:count], *words[at:])})
    assert (only(job).site.line, only(job).odd) == (job.line("decides"), (1,))


def test_a_hot_loop_is_not_compared():
    source = """
    def main(rank):
        for step in range(5):
            total = 0
            for n in range(40 + 60 * rank):
                if n % (rank + 2):
                    total += n
            bad = (rank, step) == (1, 3)
            if bad:  # decides
                continue
            all_reduce()
    """
    for hot in (8, 50, 90):
        job = run(source, 3, hot=hot)
        assert any(one & 15 == Kind.HOT for one in job.paths[2].threads["MainThread"])
        found = only(job)
        assert (found.kind, found.site.line, found.odd) == ("branch", job.line("decides"), (1,)), hot
    job = run(source.replace("(1, 3)", "(1, 9)"), 3, hot=8)
    assert partings(job) == ()


def test_collectives_in_a_hot_loop():
    job = run(
        """
        def main(rank):
            for step in range(3):
                for n in range(20):  # loop
                    total = [m for m in range(30)]
                    if n == 17 and (step, rank) == (1, 1):
                        continue
                    all_reduce()
        """,
        3,
        hot=8,
    )
    found = only(job)
    assert found.odd == (1,)


@pytest.mark.parametrize("dark", [3, 10, 30])
def test_functions_that_begin_too_often(dark):
    job = run(
        """
        def square(n):
            if n % 3:
                return n
            return n * n

        def deep(n):
            return deep(n - 1) if n else square(n)

        def main(rank):
            for step in range(5):
                total = sum(map(square, range(20 + 3 * rank)))
                deep(5 + rank)
                bad = (rank, step) == (1, 3)
                if bad:  # decides
                    continue
                all_reduce()
        """,
        3,
        dark=dark,
    )
    assert any(one & 15 == Kind.HOT for one in job.paths[2].threads["MainThread"]) == (dark < 30)
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("branch", job.line("decides"), (1,))
    assert way(found, 1).before[1] == (0, 3)


def test_a_collective_in_a_function_that_begins_too_often():
    job = run(
        """
        def maybe(rank, step, n):
            if n == 19 and (rank, step) != (1, 2):
                all_reduce()

        def main(rank):
            for step in range(5):
                for n in range(20):
                    maybe(rank, step, n)  # site
        """,
        3,
        dark=8,
    )
    for found in partings(job):
        assert (found.site.line, found.odd) == (job.line("site"), (1,))


FRAMEWORK = """
class Trainer:
    def fit(self, module, rank):
        for step in range(6):
            if self.validates(rank, step):
                module.validate()
            module.train(step)

    def validates(self, rank, step):
        return (rank, step) == (1, 3)
"""
USER = """
class Module:
    def validate(self):
        all_reduce()
    def train(self, step):
        all_reduce()

def main(rank):
    Trainer().fit(Module(), rank)  # fit
"""


def test_frameworks_are_compared_too():
    job = run(USER, 3, library=FRAMEWORK, traced=True)
    found = only(job)
    assert (found.kind, found.site.file, found.site.line, found.odd) == ("branch", "/site/library.py", 5, (1,))
    assert found.callers[-1].line == job.line("fit")


@pytest.mark.parametrize("recorded", [(), (0,), (1,), (0, 2)])
def test_frameworks_that_not_all_ranks_have_recorded(recorded):
    job = run(USER, 3, library=FRAMEWORK, traced=True)
    plain = run(USER, 3, library=FRAMEWORK)
    for rank in range(3):
        if rank not in recorded:
            job.paths[rank] = plain.paths[rank]
    found = only(job)
    assert (found.kind, found.site.line, found.odd) == ("call", job.line("fit"), (1,))
    healthy = USER.replace("Trainer().fit(Module(), rank)", "Trainer().fit(Module(), 0)")
    job = run(healthy, 3, library=FRAMEWORK, traced=True)
    plain = run(healthy, 3, library=FRAMEWORK)
    for rank in range(3):
        if rank not in recorded:
            job.paths[rank] = plain.paths[rank]
    assert partings(job) == ()


def test_two_versions_of_a_file():
    """From there on nothing is said."""
    job = run(LOOP, 2)
    other = run(LOOP.replace("if bad:", "if bad or step < 0:"), 2)
    moved = run(LOOP.replace("def main", "# comment\n\ndef main"), 2)
    for third in (other, moved):
        job.paths[1] = third.paths[1]
        assert [sides(found) for found in partings(job)] == [[(), (1,)]]  # its own history


def test_values_of_frames_that_still_live():
    job = run(
        """
        def main(rank):
            for step in range(6):
                if step > 2 and rank:  # decides
                    broadcast()
                all_reduce()
        """,
        2,
    )
    stacks = {rank: (Frame(FILE, 3, "main", locals={"rank": str(rank), "step": "3"}),) for rank in range(2)}
    (found,) = compared(job, frames=stacks).partings()
    assert found.values == {0: {"rank": "0"}, 1: {"rank": "1"}}
    assert found.text == "rank"
    stacks[1] = (Frame(FILE, 3, "main", locals={"rank": "<an object>"}),)
    assert compared(job, frames=stacks).partings()[0].values == {0: {"rank": "0"}}


def test_values_that_may_have_changed_since_are_not_shown():
    job = run(LOOP.replace("rank, step", "rank, n").replace("step", "n"), 2)
    found = only(job)
    assert found.text == "bad"
    main = run(
        """
        def main(rank):
            for step in range(6):
                bad = rank == 1 and step == 2
                if bad:  # decides
                    continue
                all_reduce()
        """,
        2,
    )
    stacks = {rank: (Frame(FILE, 5, "main", locals={"bad": "False"}),) for rank in range(2)}
    (found,) = compared(main, frames=stacks).partings()
    assert found.site.line == main.line("decides")
    assert 1 not in found.values  # it has come there again since


def test_a_pipeline_with_fewer_messages_in_one_step():
    job = run(
        """
        def main(rank):
            for step in range(6):
                count = 4 if (rank, step) != (1, 4) else 2
                for micro in range(count):  # loop
                    if rank == 0:
                        send(1)
                    else:
                        recv(0)
                if rank == 0:
                    recv(1)
                else:
                    send(0)
            for rest in range(4):
                if rank == 1:
                    recv(0)
        """,
        2,
    )
    assert job.hangs
    found = partings(job)
    assert [(one.kind, one.site.line, one.odd) for one in found] == [("loop", job.line("loop"), (1,))]


def test_differences_until_a_step():
    job = run(
        """
        def main(rank):
            for n in range(6):
                drop = rank == 1 and n > 2
                if drop:  # drops
                    scale = 0
                all_reduce()
                step()
                if rank == 1:  # logs
                    pass
        """,
        2,
    )
    paths = compared(job)
    assert [one.site.line for one in paths.differences((1,), (0,), 2).harmless] in ([3], [job.line("logs"), 3])
    assert job.line("drops") not in [one.site.line for one in paths.differences((1,), (0,), 3).harmless]
    assert job.line("drops") in [one.site.line for one in paths.differences((1,), (0,), 4).harmless]
    assert paths.differences((1,), (0,)).parting is None


def test_recordings_are_compared_once():
    job = run(LOOP, 3)
    recording = Recording(
        3, {rank: recorded(rank, path) for rank, path in job.paths.items()}, sources={FILE: job.source}
    )
    found = module.partings(recording)
    assert [one.site.line for one in found] == [job.line("decides")]
    assert module.partings(recording) is found
    assert module.parting(recording, (1,), (0, 2)) == found[0]
    assert module.parting(recording, (0,), (2,)) is None
    assert module.differences(recording, (1,), (0, 2)).parting == found[0]
    assert module.partings(Recording(2, {0: RankRecord(0), 1: RankRecord(1)})) == ()


def recorded(rank: int, path: Path) -> RankRecord:
    return replace(RankRecord(rank), path=path)


def test_other_threads_are_compared_where_the_main_threads_did_the_same():
    job, same = run(LOOP, 3), run("def main(rank):\n    all_reduce()\n", 3)
    main = same.paths[0].threads["MainThread"]
    records = {}
    for rank, path in job.paths.items():
        known = len(path.codes)
        shifted = tuple(one + (known << A) if one & 15 in (Kind.ENTER, Kind.RESUME) else one for one in main)
        threads = {"MainThread": shifted, "writer": path.threads["MainThread"]}
        records[rank] = recorded(rank, replace(path, threads=threads, codes=path.codes + same.paths[0].codes))
    found = module.partings(Recording(3, records, sources={FILE: job.source}))
    assert [(one.site.line, one.odd) for one in found] == [(job.line("decides"), (1,))]
    assert module.parting(Recording(3, records), (1,), (0, 2)) is not None


# -- untrusted


def test_kinds_are_those_of_words():
    assert all(getattr(frames, kind.name) == kind for kind in Kind)


def test_malformed_words():
    """Never an exception, never endless."""
    job = run(LOOP, 3)
    chance = random.Random(7)
    for _ in range(150):
        paths = dict(job.paths)
        for rank, path in job.paths.items():
            words = list(path.threads["MainThread"])
            for _ in range(chance.randrange(1, 9)):
                at = chance.randrange(len(words))
                match chance.randrange(5):
                    case 0:
                        del words[at]
                    case 1:
                        words.insert(at, chance.getrandbits(64))
                    case 2:
                        words[at] = chance.getrandbits(30)
                    case 3:
                        words[at:at] = words[at : at + 20]
                    case _:
                        words[at] ^= 1 << chance.randrange(30)
            paths[rank] = replace(path, threads={"MainThread": tuple(words)})
        ComparedPaths(paths, members=job.groups).partings()


def test_malformed_codes():
    job = run(LOOP, 3)
    chance = random.Random(3)
    for _ in range(60):
        paths = dict(job.paths)
        for rank, path in job.paths.items():
            codes = []
            for code in path.codes:
                blocks = [
                    replace(block, after=chance.choice(code.blocks).start, next=chance.choice(code.blocks).start)
                    if chance.random() < 0.3
                    else block
                    for block in code.blocks
                ]
                codes.append(replace(code, blocks=tuple(blocks[chance.randrange(2) :])))
            paths[rank] = replace(path, codes=tuple(codes))
        ComparedPaths(paths, members=job.groups).partings()
    empty = {rank: replace(path, codes=(), texts=()) for rank, path in job.paths.items()}
    assert ComparedPaths(empty).partings() == ()
    assert ComparedPaths({0: Path(), 1: Path()}).partings() == ()


def test_random_words():
    chance = random.Random(1)
    job = run(LOOP, 2)
    for _ in range(100):
        paths = {
            rank: replace(
                job.paths[0],
                threads={
                    "MainThread": tuple(
                        chance.randrange(16) | chance.randrange(9) << A | chance.randrange(9) << B
                        for _ in range(chance.randrange(200))
                    )
                },
            )
            for rank in range(3)
        }
        ComparedPaths(paths).partings()
