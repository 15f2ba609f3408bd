"""The loops around a line, and whether each iteration comes to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.source.loops import every_iteration
from tests.rules.recordings import Script


def script_of(body, head=""):
    lines = "\n".join(f"    {one}" for one in body.strip("\n").splitlines())
    return Script(f"{head}\ndef main(rank, loader, world):\n{lines}\n")


def comes_to_the_call(script, *path):
    return every_iteration({script.file: script.text}, [script.at(mark) for mark in path or ("call",)])


@pytest.mark.parametrize(
    "body",
    [
        "for x in loader:\n    step(x)   # call",
        "while not done(rank):\n    step()   # call",
        "while True:\n    step()   # call\n    if empty():\n        break",
        "for x in loader:\n    step(x)   # call\n    if late(x):\n        continue",
        "for x in loader:\n    for y in x:\n        if odd(y):\n            continue\n    step(x)   # call",
        "for x in loader:\n    def loss():\n        return 0\n    step(x)   # call",
        "if rank == 0:\n    for x in loader:\n        step(x)   # call",
        "with lock:\n    for epoch in epochs:\n        for x in loader:\n            step(x)   # call",
    ],
)
def test_every_iteration_comes_to_the_call(body):
    script = script_of(body)
    assert comes_to_the_call(script)


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
        "for x in loader:\n    with contextlib.suppress(ValueError):\n        step(x)   # call",
        "for x in loader:\n    if bad(x):\n        continue\n    for y in x:\n        step(y)   # call",
        "for epoch in epochs:\n    try:\n        for x in loader:\n            step(x)   # call\n    finally:\n        pass",
        "for x in loader:\n    match x:\n        case 0:\n            step(x)   # call",
    ],
)
def test_an_iteration_may_not_come_to_the_call(body):
    script = script_of(body)
    assert not comes_to_the_call(script)


HELPER = "def step(x):\n    loss(x).backward()   # call\n"


@pytest.mark.parametrize(
    ("body", "head", "comes"),
    [
        ("for x in loader:\n    step(x)   # step", HELPER, True),
        ("step(loader)   # step", "def step(loader):\n    for x in loader:\n        reduce(x)   # call\n", True),
        ("step(x)   # step", HELPER, False),
        ("for x in loader:\n    try:\n        step(x)   # step\n    except ValueError:\n        pass", HELPER, False),
        ("for x in loader:\n    if x:\n        step(x)   # step", HELPER, False),
        (
            "for x in loader:\n    step(x)   # step",
            "def step(x):\n    if bad(x):\n        return\n    reduce(x)   # call\n",
            False,
        ),
        (
            "for x in loader:\n    step(x)   # step",
            "def step(x):\n    with suppress(E):\n        reduce(x)   # call\n",
            False,
        ),
        ("for x in loader:\n    step(x)   # step", "def step(x):\n    reduce(x)   # call\n    return x\n", True),
    ],
)
def test_callers_are_a_part_of_the_iteration(body, head, comes):
    assert comes_to_the_call(script_of(body, head), "step", "call") is comes


def test_without_the_source_of_every_frame_nothing_is_said():
    script = script_of("for x in loader:\n    step(x)   # call")
    assert not every_iteration({}, [script.at("call")])
    assert not every_iteration(
        {script.file: script.text}, [script.at("call"), replace(script.at("call"), file="other.py")]
    )
