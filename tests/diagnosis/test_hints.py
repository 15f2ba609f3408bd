"""Hints say that they were inferred, and only where nothing else can have decided."""

from __future__ import annotations

import textwrap
from dataclasses import replace

import pytest

from ddpnb.diagnosis.hints import guess
from tests.diagnosis.recordings import Rank, Script, record

CALLER = Script(
    """
    def main(rank):
        if rank != 1:  # decides
            reduce()  # calls
        if rank:
            if late:
                reduce()  # twice
    """
)
CALLED = Script("def reduce():\n    dist.all_reduce(x)  # waits", "/home/me/reduce.py")


def test_the_only_statement_that_can_decide_is_a_guess_and_says_so():
    recording = record(Rank(0), Rank(1), script=CALLER)
    recording = replace(recording, sources={**recording.sources, CALLED.file: CALLED.text})
    text = f"Possibly `if rank != 1` at {CALLER.file}:{CALLER.line('decides')} decides: inferred from the source, not observed."
    assert guess(recording, (CALLER.at("calls"), CALLED.at("waits", "reduce"))) == [text]
    assert guess(recording, (CALLER.at("calls"),)) == [text]


def test_of_several_candidates_none_is_chosen():
    recording = record(Rank(0), Rank(1), script=CALLER)
    assert guess(recording, (CALLER.at("twice"),)) == []
    assert guess(recording, ()) == []


@pytest.mark.parametrize(
    "text",
    [
        "for x in loader:\n    if debug:\n        break\n    try:\n        step(x)  # call\n    except E:\n        continue",
        "for x in loader:\n    try:\n        load(x)\n    except E:\n        continue\n    if debug:\n        step(x)  # call",
        "while more():\n    if debug:\n        step(x)  # call",
        "match mode:\n    case 1:\n        if debug:\n            step(x)  # call",
        "for x in loader:\n    for y in x:\n        return\n    if debug:\n        step(x)  # call",
    ],
)
def test_where_something_else_may_decide_nothing_is_guessed(text):
    body = "\n".join(f"    {line}" for line in text.splitlines())
    script = Script(f"def main():\n{body}\n")
    assert guess(record(Rank(0), Rank(1), script=script), (script.at("call"),)) == []


def test_jumps_that_do_not_leave_the_iteration_do_not_count():
    text = "for x in loader:\n    for y in x:\n        if y:\n            break\n    try:\n        close()\n    finally:\n        if debug:\n            step(x)  # call\n"
    script = Script(f"def main():\n{textwrap.indent(text, '    ')}")
    (said,) = guess(record(Rank(0), Rank(1), script=script), (script.at("call"),))
    assert "`if debug`" in said


def test_a_long_condition_is_cut():
    script = Script(f"def main():\n    if {' + '.join(['x'] * 300)}:\n        step(x)  # call\n")
    (said,) = guess(record(Rank(0), Rank(1), script=script), (script.at("call"),))
    assert len(said) < 200 and "...` at" in said
