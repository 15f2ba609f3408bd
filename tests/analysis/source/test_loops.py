"""What makes a loop shorter on one rank than on the others."""

from __future__ import annotations

import pytest

from ddpnb.analysis.source.loops import ended_early, loop_over, passed_over, swallowed
from tests.analysis.recordings import Rank, Script, record


def recording(script):
    return record(Rank(0, 2), Rank(1, 2), script=script)


def script_of(body, head=""):
    lines = "\n".join(f"    {one}" for one in body.strip("\n").splitlines())
    return Script(f"{head}\ndef main(rank, loader, world):\n{lines}\n")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("for x in loader:   # end\n    step(x)   # call", "one round for each of loader"),
        ("for i in range(rank * 2):   # end\n    step(i)   # call", "one round for each of range(rank * 2)"),
        ("while not done(rank):   # end\n    step()   # call", "while not done(rank)"),
        ("while True:\n    step()   # call\n    if empty():\n        break   # end", "break, if empty()"),
        ("for i in range(8):\n    step(i)   # call\n    if stop(i):\n        break   # end", "break, if stop(i)"),
        (
            "for x in loader:\n    step(x)   # call\n    if rank == 0 and bad(x):\n        break   # end",
            "break, if rank == 0 and bad(x)",
        ),
        (
            "for x in loader:   # end\n    for p in model.parameters():\n        reduce(p)   # call",
            "one round for each of loader",
        ),
        (
            "start = saved(rank)\nfor i in range(start, 8):   # end\n    step(i)   # call",
            "line 2 makes that each rank's own",
        ),
        (
            "while True:\n    try:\n        x = next(it)\n    except StopIteration:\n        if rank:\n            break   # end\n    step(x)   # call",
            "break, if rank",
        ),
    ],
)
def test_what_ends_it(body, reason):
    script = script_of(body)
    place, told = ended_early(recording(script), (script.at("call"),))
    assert place.line == script.line("end")
    assert reason in told


def test_the_loop_is_in_the_caller():
    script = script_of("for x in loader:   # end\n    step(x)   # caller", "def step(x):\n    reduce(x)   # call\n")
    place, _ = ended_early(recording(script), (script.at("caller"), script.at("call", "step")))
    assert (place.line, place.function) == (script.line("end"), "main")


@pytest.mark.parametrize("body", ["step()   # call", "for i in range(3):\n    step(i)   # call"])
def test_nothing_ends_it(body):
    script = script_of(body)
    assert ended_early(recording(script), (script.at("call"),)) is None
    assert ended_early(record(Rank(0, 2)), (script.at("call"),)) is None  # nobody has the source


def test_a_loop_that_is_known_to_be_even():
    script = script_of("for epoch in epochs:   # outer\n    for x in loader:   # inner\n        step(x)   # call")
    even = {(script.file, script.line("inner"))}
    place, _ = ended_early(recording(script), (script.at("call"),), even)
    assert place.line == script.line("outer")


def test_a_round_that_is_left_out():
    body = "for x in loader:\n    if broken(x):\n        continue   # next\n    step(x)   # call\n    if late(x):\n        continue"
    script = script_of(body)
    place, told = passed_over(recording(script), (script.at("call"),))
    assert (place.line, told) == (
        script.line("next"),
        f"Line {place.line} goes on with the next round: continue, if broken(x).",
    )
    assert passed_over(recording(script), (script.at("next"),)) is None  # it comes later


def test_a_handler_that_goes_on():
    script = script_of(
        "for x in loader:\n    try:\n        step(x)   # call\n    except ValueError:   # handler\n        continue"
    )
    place, told = swallowed(recording(script), (script.at("call"),))
    assert place.line == script.line("handler") and "except ValueError" in told


@pytest.mark.parametrize("last", ["raise", "break", "return"])
def test_a_handler_that_leaves(last):
    script = script_of(f"for x in loader:\n    try:\n        step(x)   # call\n    except ValueError:\n        {last}")
    assert swallowed(recording(script), (script.at("call"),)) is None


def test_a_handler_around_the_loop():
    script = script_of("try:\n    for x in loader:\n        step(x)   # call\nexcept ValueError:\n    log()")
    assert swallowed(recording(script), (script.at("call"),)) is None


def test_the_loop_over_the_data():
    script = script_of("for x in loader:   # loop\n    for _ in range(2):\n        step(x)   # call")
    assert loop_over(recording(script), script.at("call")).line == script.line("loop")
    outside = script_of("step(loader)   # call")
    assert loop_over(recording(outside), outside.at("call")) == outside.at("call")
