"""What a comparison of paths needs of a function: decisions, regions, loops, names, lines."""

from __future__ import annotations

import sys
import textwrap
from types import CodeType

import pytest

from ddpnb.recorder.stacks.path_codes import described
from ddpnb.recording.path import Code

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="no decisions are recorded in Python 3.11")


def function(body: str, head: str = "def f(batch, loader, self, skip, last):") -> Code:
    text = f"{head}\n{textwrap.indent(textwrap.dedent(body), '    ')}"
    module = compile(text, "train.py", "exec")
    return described(next(one for one in module.co_consts if type(one) is CodeType), user=True)


def block_at(code: Code, offset: int):
    return next((block for block in code.blocks if block.start <= offset < block.end), None)


def line_at(code: Code, offset: int) -> int | None:
    """The line of an offset; None: the end of the function."""
    return [line for start, line in code.lines if start <= offset][-1] if offset >= 0 else None


def ends(code: Code) -> list[tuple[int, int | None]]:
    """Of each decision its line, and the line where its region ends."""
    return [(branch.line, line_at(code, block_at(code, branch.offset).after)) for branch in code.branches]


def test_a_region_ends_where_both_ways_meet():
    code = function("""
        if batch:
            first()
        else:
            second()
        both()
    """)
    assert ends(code) == [(3, 7)]


def test_a_return_leaves_nothing_that_both_ways_pass():
    code = function("""
        if batch:
            return
        work()
    """)
    assert ends(code) == [(3, None)]


def test_a_continue_meets_the_others_at_the_loop():
    code = function("""
        for x in loader:
            if skip:
                continue
            work()
        after()
    """)
    assert ends(code) == [(3, 3), (4, 3)]
    assert [branch.loop for branch in code.branches] == [True, False]


@pytest.mark.parametrize("head", ["while True:", "while last:"])
def test_a_continue_beside_a_break_meets_the_others_at_the_beginning_of_the_loop(head):
    code = function(f"""
        {head}
            if skip:
                continue
            work()
            if batch:
                break
        after()
    """)
    decision = {branch.line: branch for branch in code.branches}
    assert not decision[4].loop
    assert decision[7].loop
    assert line_at(code, block_at(code, decision[4].offset).loop) == 4
    assert line_at(code, block_at(code, decision[7].offset).after) in (
        8,
        9,
    )  # the break itself, where nothing else leaves


def test_a_loop_without_an_end_is_taken_as_if_it_could_end_after_each_iteration():
    code = function("""
        while True:
            if skip:
                first()
            second()
    """)
    assert ends(code) == [(4, 6)]


def test_a_handler_is_not_on_the_usual_way():
    code = function("""
        for x in loader:
            try:
                if batch:
                    work()
            except ValueError:
                log()
            after()
    """)
    assert dict(ends(code))[5] == 9
    assert not next(branch for branch in code.branches if branch.line == 7).loop


def test_blocks_cover_the_function_without_a_gap():
    code = function("""
        with self.lock:
            for x in loader:
                if x and not skip:
                    yield x if last else batch
        while last:
            last = last - 1
    """)
    assert [block.end for block in code.blocks[:-1]] == [block.start for block in code.blocks[1:]]
    starts = {block.start for block in code.blocks} | {-1}
    assert all({block.next, block.after, block.loop} <= starts for block in code.blocks)


def test_names_are_what_the_decision_reads_without_what_it_calls():
    code = function("""
        if len(batch) > 2 and self.config.flag and self.is_last():
            work()
        for x in self.loader:
            pass
    """)
    assert [branch.names for branch in code.branches] == [
        ("batch",),
        ("self.config.flag",),
        ("self",),
        ("self.loader",),
    ]


def test_an_expression_has_its_columns():
    code = function("if skip and batch.size > 4: work()")
    assert [(branch.column, branch.end_column) for branch in code.branches] == [(7, 11), (16, 30)]


def test_another_version_of_a_function_has_another_digest():
    one, same, other = (
        function(f"if skip: work({number})\nself.{name}()") for number, name in ((1, "a"), (1, "a"), (1, "b"))
    )
    assert one == same
    assert one.digest != other.digest


def test_a_coroutine_passes_what_it_awaits():
    code = function(
        """
        if skip:
            await batch
        await last
    """,
        head="async def f(batch, skip, last):",
    )
    assert ends(code) == [(3, 5)]
    at = next(block for block in code.blocks if line_at(code, block.start) == 4)
    seen = set()
    while at.next >= 0 and at.start not in seen:
        seen.add(at.start)
        at = block_at(code, at.next)
    assert line_at(code, at.start) == 5


def test_a_function_of_thousands_of_decisions():
    code = function("\n".join(f"if batch == {number}: work()" for number in range(2000)))
    assert len(code.branches) == 2000
    assert ends(code)[0] == (2, 3)


def test_an_assert_is_passed():
    code = function("""
        for x in loader:
            assert x, "empty"
            if skip:
                raise ValueError(x)
            work()
        after()
    """)
    assert ends(code) == [(3, 3), (4, 5), (5, 7)]


def test_a_handler_that_jumps_back_makes_no_loop():
    code = function("""
        for x in loader:
            with batch:
                work()
            if last:
                break
            more()
    """)
    decision = {branch.line: branch for branch in code.branches}
    heads = {block.loop for block in code.blocks} - {-1}
    assert heads == {decision[3].offset}
    assert block_at(code, decision[6].offset).loop == decision[3].offset


def test_what_the_compiler_copies_behind_two_ways():
    code = function("train(12 if skip else 10)")
    ((start, end, first),) = code.copies
    copy, original = (next(block for block in code.blocks if block.start == at) for at in (start, first))
    assert copy.end == end and copy.end - copy.start == original.end - original.start
    assert {block.next for block in code.blocks if block not in (copy, original)} == {first, -1}
    assert block_at(code, code.branches[0].offset).after == first
    assert code.original(start + 2) == first + 2
    assert function("return first() if skip else last()").copies == ()
