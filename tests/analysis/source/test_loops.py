"""The loops around a line, and whether each iteration comes to it."""

from __future__ import annotations

import pytest

from ddpnb.analysis.source.loops import every_iteration, loop_header
from tests.analysis.recordings import Script


def script_of(body, head=""):
    lines = "\n".join(f"    {one}" for one in body.strip("\n").splitlines())
    return Script(f"{head}\ndef main(rank, loader, world):\n{lines}\n")


@pytest.mark.parametrize(
    "body",
    [
        "for x in loader:\n    step(x)   # call",
        "while not done(rank):\n    step()   # call",
        "while True:\n    step()   # call\n    if empty():\n        break",
        "for x in loader:\n    with lock:\n        step(x)   # call",
        "for x in loader:\n    step(x)   # call\n    if late(x):\n        continue",
        "for x in loader:\n    for y in x:\n        if odd(y):\n            continue\n    step(x)   # call",
        "for x in loader:\n    def loss():\n        return 0\n    step(x)   # call",
        "if rank == 0:\n    for x in loader:\n        step(x)   # call",
    ],
)
def test_every_iteration_comes_to_the_call(body):
    script = script_of(body)
    assert every_iteration(script.text, script.line("call"))


@pytest.mark.parametrize(
    "body",
    [
        "step()   # call",
        "for x in loader:\n    if broken(x):\n        continue\n    step(x)   # call",
        "for x in loader:\n    if good(x):\n        step(x)   # call",
        "for x in loader:\n    try:\n        step(x)   # call\n    except ValueError:\n        pass",
        "for x in loader:\n    if bad(x):\n        return\n    step(x)   # call",
        "for x in loader:\n    step(x)   # call\n    if bad(x):\n        return",
        "for x in loader:\n    for y in x:\n        return\n    step(x)   # call",
        "for x in loader:\n    match x:\n        case 0:\n            step(x)   # call",
    ],
)
def test_an_iteration_may_not_come_to_the_call(body):
    script = script_of(body)
    assert not every_iteration(script.text, script.line("call"))


def test_the_header_of_the_only_loop():
    script = script_of("for x in loader:   # loop\n    step(x)   # call")
    assert loop_header(script.text, script.line("call")) == (script.line("loop"), "`for x in loader`")
    script = script_of("while not done(rank):   # loop\n    step()   # call")
    assert loop_header(script.text, script.line("call")) == (script.line("loop"), "`while not done(rank)`")


def test_of_several_loops_no_header_is_chosen():
    script = script_of("for epoch in epochs:\n    for x in loader:\n        step(x)   # call")
    assert loop_header(script.text, script.line("call")) is None
    assert loop_header("", 1) is None
