"""Words that several findings share."""

from __future__ import annotations

import textwrap
from dataclasses import replace

import pytest

from ddpnb.analysis import phrases
from ddpnb.analysis.phrases import guess, undecided
from ddpnb.model.calls import Call, CallState, Group, Signature, Site
from tests.analysis.recordings import Rank, Script, record

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


def test_a_tie_is_told_with_its_sides():
    assert undecided(()) == []
    assert undecided(((0, 2), (1,))) == [
        "Nothing that was recorded tells which side is at fault: ranks 0 and 2 or rank 1."
    ]
    assert len(undecided([(rank,) for rank in range(1000)])[0]) < 300


def test_a_call_whose_names_had_no_room_in_the_box():
    unnamed = Call(6, Group.from_json({}), 7, Signature.from_json({}), Site.from_json({}), CallState.WAITING)
    text = phrases.in_call(unnamed)
    assert text.startswith("unnamed call #7 of an unknown group") and "table of names is full" in text
    for shown in (text, str(unnamed.signature), str(unnamed.site), phrases.at(unnamed.site)):
        assert "?" not in shown


def test_names_from_a_box_do_not_drive_a_terminal():
    odd = "\x1b[31mred\x07\n"
    site, group = Site.from_json({"function": odd, "line": 3}), Group.from_json({"label": odd, "name": odd})
    for name in (site.function, group.label, group.name, Signature.from_json({"op": odd}).op):
        assert name.isprintable() and "red" in name


def test_what_each_side_has_is_said_of_every_side():
    backends = {0: "'gloo'", 1: "'nccl'", 2: "'nccl'", 3: "'mpi'"}
    assert phrases.by_side(((0,), (1, 2), (3,)), backends.__getitem__) == (
        "'gloo' on rank 0, 'nccl' on ranks 1 and 2, 'mpi' on rank 3"
    )


def test_of_many_sides_the_rest_is_counted():
    text = phrases.by_side([(rank,) for rank in range(10)], str)
    assert text.startswith("0 on rank 0, 1 on rank 1") and text.endswith("7 on rank 7, 2 more")
