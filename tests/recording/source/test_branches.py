from __future__ import annotations

import pytest

from ddpnb.recording.source.branches import candidates, decisions, guards_of, handler_at, relation, trouble, ways_around
from ddpnb.recording.source.loops import every_iteration, loop_around
from tests.rules.recordings import FILE, Script
from tests.rules.recordings import line as at_line

SCRIPT = Script(
    """
    import torch  # import


    def main(rank):
        before()  # before
        if rank == 0:  # if
            first()  # if-body
            again()  # if-body-2
        elif rank == 1:  # elif
            second()  # elif-body
        else:
            third()  # else-body
        for step in range(9):  # for
            if step == 3:
                inner()  # inner
                continue  # continue
            looped()  # looped
        else:
            exhausted()  # for-else
        match rank:
            case 0:
                zero()  # case-0
                nought()  # case-0b
            case 1 | 2:
                few()  # case-few
            case _:
                many()  # case-rest
        try:
            tried()  # try
        except ValueError:
            caught()  # except
        except KeyError:
            other()  # except-2
        else:
            well()  # try-else
        finally:
            last()  # finally
        with lock:
            locked(  # with
                1,  # with-argument
            )

        def nested():  # nested-def
            within()  # nested
            within_too()  # nested-2

        after()  # after


    @decorated(  # decorator
        1,
    )
    def another():  # another-def
        elsewhere()  # another


    class Trainer:
        def fit(self):
            fits()  # fit

        async def test(self):
            async for batch in loader:
                tests()  # test


    main(0)  # module
    """
)


def related(one: str, other: str) -> str:
    return relation(SCRIPT.text, SCRIPT.line(one), SCRIPT.line(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("if-body", "else-body"),
        ("if-body", "elif-body"),
        ("elif-body", "else-body"),
        ("if-body-2", "elif"),
        ("case-0", "case-few"),
        ("case-few", "case-rest"),
        ("except", "except-2"),
        ("except", "try-else"),
    ],
)
def test_arms_of_one_decision_exclude_each_other(one, other):
    assert related(one, other) == related(other, one) == "exclusive"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("before", "after"),
        ("if", "if-body"),
        ("if-body", "if-body-2"),
        ("if-body", "after"),
        ("if", "elif"),
        ("for", "looped"),
        ("inner", "looped"),
        ("looped", "for-else"),
        ("case-0", "case-0b"),
        ("case-0", "after"),
        ("try", "except"),
        ("try", "try-else"),
        ("try", "finally"),
        ("except", "finally"),
        ("with", "after"),
        ("with", "with-argument"),
        ("nested", "nested-2"),
        ("import", "module"),
        ("decorator", "module"),
        ("before", "nested-def"),
    ],
)
def test_steps_of_one_path_are_a_sequence(one, other):
    assert related(one, other) == related(other, one) == "sequence"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("before", "another"),
        ("before", "module"),
        ("nested", "after"),
        ("fit", "test"),
        ("decorator", "another"),
    ],
)
def test_lines_of_different_functions_are_unrelated(one, other):
    assert related(one, other) == related(other, one) == "unknown"


def test_a_line_is_the_same_as_itself_even_without_a_source():
    assert related("looped", "looped") == "same"
    assert relation("", 4, 4) == "same"


@pytest.mark.parametrize("source", ["", "def f(:\n  x\n", "x = 1\0\ny = 2\n", "(" * 5000 + "\n1\n", "  x\n y\n"])
def test_a_source_that_does_not_parse_tells_nothing(source):
    assert relation(source, 1, 2) == "unknown"
    assert loop_around(source, 1) is None
    assert not every_iteration({FILE: source}, [at_line(1)])
    assert guards_of(source, 1) == []


@pytest.mark.parametrize("line", [0, -1, 10_000])
def test_a_line_outside_of_the_source_tells_nothing(line):
    assert relation(SCRIPT.text, line, SCRIPT.line("after")) == "unknown"
    assert relation(SCRIPT.text, SCRIPT.line("after"), line) == "unknown"
    assert loop_around(SCRIPT.text, line) is None
    assert guards_of(SCRIPT.text, line) == []


def test_a_blank_line_tells_nothing():
    assert relation("a()\n\nb()\n", 2, 3) == "unknown"


def test_warnings_about_the_users_text_are_not_ours_to_give():
    r"""Python warns of "\d" when it parses; here, where warnings are errors, that would be no tree."""
    assert relation("pattern = '\\d'\nafter()\n", 1, 2) == "sequence"


# -- loops


def test_the_loop_around_a_line():
    script = Script(
        """
        for epoch in range(3):  # outer
            begin()  # begin
            while True:  # inner
                step()  # step
            end()  # end
        else:
            last()  # else
        done()  # done
        """
    )
    outer, inner = (script.line("outer"), script.line("else")), (script.line("inner"), script.line("step"))
    assert loop_around(script.text, script.line("step")) == inner
    assert loop_around(script.text, script.line("begin")) == outer
    assert loop_around(script.text, script.line("end")) == outer
    assert loop_around(script.text, script.line("else")) is None
    assert loop_around(script.text, script.line("done")) is None


def test_an_asynchronous_loop_is_a_loop():
    assert loop_around(SCRIPT.text, SCRIPT.line("test")) == (SCRIPT.line("test") - 1, SCRIPT.line("test"))


def test_the_condition_of_a_while_is_in_its_loop():
    """It runs once a round, as the body does."""
    assert loop_around("while more():\n    step()\n", 1) == (1, 2)


def test_a_loop_around_a_function_is_not_around_its_lines():
    source = "for step in steps:\n    def once():\n        call()\n    once()\n"
    assert loop_around(source, 3) is None
    assert loop_around(source, 4) == (1, 4)


# -- guards


@pytest.mark.parametrize(
    ("mark", "guard"),
    [
        ("if-body", ("if", "rank == 0")),
        ("elif-body", ("elif", "rank == 1")),
        ("else-body", ("elif", "not (rank == 1)")),
    ],
)
def test_the_guard_of_a_line(mark, guard):
    assert guards_of(SCRIPT.text, SCRIPT.line(mark))[0] == (SCRIPT.line(guard[0]), guard[1])


@pytest.mark.parametrize("mark", ["before", "if", "looped", "nested", "after", "module", "except"])
def test_a_line_without_a_guard(mark):
    assert guards_of(SCRIPT.text, SCRIPT.line(mark)) == []


def test_the_innermost_guard_comes_first():
    assert guards_of("if a:\n    if b and c:\n        call()\n", 3) == [(2, "b and c"), (1, "a")]


def test_a_guard_around_a_function_does_not_guard_its_lines():
    assert guards_of("if a:\n    def once():\n        call()\n", 3) == []


def test_a_guard_around_a_loop_guards_its_lines():
    assert guards_of("if a:\n    for x in y:\n        call()\n", 3) == [(1, "a")]


# -- ways around a call

AROUND = Script(
    """
    def main(rank):
        if rank == 9:
            raise ValueError  # raise
        for step in range(20):
            if bad(step):
                log()
                continue  # continue
            elif over(step):
                pass
            else:
                with lock:
                    break  # break
            if rank == 0:
                prepare()
                call()  # call
            def loss():
                if x:
                    return 0
            if late(step):
                return
            last()  # last
        after()  # after
    """
)


def test_what_can_keep_a_rank_from_a_line_of_a_loop():
    assert ways_around(AROUND.text, AROUND.line("call")) == [
        (AROUND.line("continue"), "continue", "bad(step)"),
        (AROUND.line("break"), "break", "not (over(step))"),
    ]


def test_what_can_keep_a_rank_from_a_line_after_the_loop():
    assert ways_around(AROUND.text, AROUND.line("after")) == [(AROUND.line("raise"), "raise", "rank == 9")]


def test_a_way_without_a_condition_is_no_decision():
    assert ways_around("def f():\n    return\n    call()\n", 3) == []


@pytest.mark.parametrize(("source", "line"), [("", 1), ("def f(:\n", 1), ("call()\n", 1), ("call()\n", 99)])
def test_where_nothing_decides(source, line):
    assert ways_around(source, line) == []
    assert decisions(source, line) == [] == candidates(source, line)


def test_the_guard_is_what_decides_if_there_is_one():
    (words,) = decisions(AROUND.text, AROUND.line("call"))
    assert words == f"Guarded by `if rank == 0` at line {AROUND.line('call') - 2}."


def test_everything_that_can_keep_a_rank_from_a_line_is_a_candidate():
    lines = [number for number, _ in candidates(AROUND.text, AROUND.line("call"))]
    assert lines == [AROUND.line("call") - 2, AROUND.line("continue"), AROUND.line("break")]


def test_a_rank_that_has_ended_did_not_merely_go_on_to_the_next_iteration():
    running = [number for number, _ in candidates(AROUND.text, AROUND.line("last"))]
    ended = [number for number, _ in candidates(AROUND.text, AROUND.line("last"), ended=True)]
    assert AROUND.line("continue") in running
    assert AROUND.line("continue") not in ended
    assert AROUND.line("break") in ended


def test_the_guard_of_a_main_program_is_true_on_all_ranks():
    assert candidates('if __name__ == "__main__":\n    call()\n', 2) == []


# -- files that have no tree


@pytest.mark.parametrize(
    ("source", "line", "word"),
    [
        ("x = 1\ndef f(:\n", 2, "syntax"),
        ("x = 1\0\n", 0, "null"),
        ("  x\n y\n", 1, "indent"),
    ],
)
def test_why_a_file_has_no_tree(source, line, word):
    at, text = trouble(source)
    assert word in text
    assert at in (0, line)


def test_a_file_with_a_tree_is_no_trouble():
    assert trouble("x = 1\n") is None


def test_the_handler_around_a_line():
    """Its first line also runs for exceptions that it does not handle."""
    script = Script("""
        for batch in loader:
            try:
                loss = step(batch)      # step
            except ValueError as error: # except
                print(error)            # handled
                continue                # continue
    """)
    whole = (script.line("except"), script.line("continue"))
    assert handler_at(script.text, script.line("handled")) == handler_at(script.text, script.line("continue")) == whole
    assert handler_at(script.text, script.line("except")) is handler_at(script.text, script.line("step")) is None
