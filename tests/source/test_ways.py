"""Which statement decided that a line did not run."""

from __future__ import annotations

import pytest

from ddpnb.source.ways import Decision, decided_against, handler_at, jump_at
from tests.diagnosis.recordings import Script

SCRIPT = Script("""
    def train(loader):
        for batch in loader:            # for
            try:                        # try
                loss = step(batch)      # step
            except ValueError as error: # except
                print(error)            # handled
                continue                # continue
            if loss > 3: break          # one line
            if (
                loss > 2                # header
            ):
                report(loss)            # report
            elif loss > 1:              # elif
                log(loss)               # log
            while loss:                 # while
                loss -= 1               # body
            return loss                 # return
""")


@pytest.mark.parametrize(
    ("mark", "word"),
    [
        ("step", ""), ("except", ""), ("handled", "except"), ("continue", "except"), ("one line", ""), ("for", ""),
        ("return", "return"),
    ],
)  # fmt: skip
def test_how_a_line_leaves_the_usual_way(mark, word):
    assert jump_at(SCRIPT.text, SCRIPT.line(mark)) == word


def test_the_handler_around_a_line():
    """Its first line also runs for exceptions that it does not handle."""
    whole = (SCRIPT.line("except"), SCRIPT.line("continue"))
    assert handler_at(SCRIPT.text, SCRIPT.line("handled")) == handler_at(SCRIPT.text, SCRIPT.line("continue")) == whole
    assert handler_at(SCRIPT.text, SCRIPT.line("except")) is handler_at(SCRIPT.text, SCRIPT.line("step")) is None


def test_a_line_of_no_statement_leaves_nothing():
    assert jump_at("", 3) == jump_at("not python", 1) == jump_at(SCRIPT.text, 100) == ""


def decides(missed: str, ran: str) -> list[Decision]:
    order = {SCRIPT.line(mark): number for number, mark in enumerate(ran.split())}
    return decided_against(SCRIPT.text, SCRIPT.line(missed), order)


def test_the_header_of_the_arm_that_did_not_run():
    assert decides("log", "for try step header elif while") == [Decision(SCRIPT.line("elif"), loop=False)]
    assert decides("report", "for try step header elif while") == [Decision(SCRIPT.line("header") - 1, loop=False)]
    assert decides("body", "for try step while return") == [Decision(SCRIPT.line("while"), loop=True)]


def test_a_loop_that_was_running_already_ends():
    assert decides("step", "while return for") == [Decision(SCRIPT.line("for"), loop=True)]


def test_of_nested_loops_that_end_the_inner_one_ended_first():
    nested = Script("""
        for epoch in range(2):   # outer
            for batch in loader: # inner
                step(batch)      # step
    """)
    order = {nested.line("inner"): 0, nested.line("outer"): 1}
    both = [Decision(nested.line(mark), loop=True) for mark in ("inner", "outer")]
    assert decided_against(nested.text, nested.line("step"), order) == both


def test_nothing_decided_against_a_line_that_may_still_come():
    assert decides("log", "for try step") == []
    assert decides("step", "for try") == []
