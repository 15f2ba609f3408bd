"""Hints say that they were inferred, and only where nothing else can have decided."""

from __future__ import annotations

import textwrap
from dataclasses import replace

import pytest

from ddpnb.recording.facts.hints import deciding_branch
from ddpnb.recording.findings import Hint
from tests.rules.recordings import Rank, Script, record

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
    hint = Hint(CALLER.file, CALLER.line("decides"), "`if rank != 1` decides which ranks get there")
    assert deciding_branch(recording, (CALLER.at("calls"), CALLED.at("waits", "reduce"))) == hint
    assert deciding_branch(recording, (CALLER.at("calls"),)) == hint
    assert str(hint).endswith(f"{hint.reason} (inferred from the source)")


def test_of_several_candidates_none_is_chosen():
    recording = record(Rank(0), Rank(1), script=CALLER)
    assert deciding_branch(recording, (CALLER.at("twice"),)) is None
    assert deciding_branch(recording, ()) is None


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
    assert deciding_branch(record(Rank(0), Rank(1), script=script), (script.at("call"),)) is None


def test_jumps_that_do_not_leave_the_iteration_do_not_count():
    text = "for x in loader:\n    for y in x:\n        if y:\n            break\n    try:\n        close()\n    finally:\n        if debug:\n            step(x)  # call\n"
    script = Script(f"def main():\n{textwrap.indent(text, '    ')}")
    hint = deciding_branch(record(Rank(0), Rank(1), script=script), (script.at("call"),))
    assert hint is not None and "`if debug`" in hint.reason


def test_a_long_condition_is_cut():
    script = Script(f"def main():\n    if {' + '.join(['x'] * 300)}:\n        step(x)  # call\n")
    hint = deciding_branch(record(Rank(0), Rank(1), script=script), (script.at("call"),))
    assert hint is not None and len(hint.reason) < 200 and "...` decides" in hint.reason
