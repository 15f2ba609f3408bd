"""What is written behind the magics."""

from __future__ import annotations

import argparse

import pytest

import ddpnb
from ddpnb.errors import UsageError
from ddpnb.notebook.magics import arguments
from ddpnb.notebook.magics.commands import WORDS, DdpMagics


@pytest.mark.parametrize(
    ("text", "ranks"),
    [("0", [0]), ("0,2", [0, 2]), ("0-3", [0, 1, 2, 3]), ("3,0-1", [3, 0, 1]), ("[0, 2]", [0, 2])],
)
def test_ranks(text, ranks):
    assert arguments.ranks(text) == ranks


@pytest.mark.parametrize("text", ["", "a", "0,,2", "2-0", "-1", "0-99999999", "0.5", "1,"])
def test_no_ranks(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is not a .* of ranks: write"):
        arguments.ranks(text)


def test_calls_as_findings_name_them():
    assert arguments.call([]) == ([], None)
    assert arguments.call(["all_reduce", "#5"]) == (["all_reduce"], 5)
    assert arguments.call(["all_reduce,broadcast", "barrier"]) == (["all_reduce", "broadcast", "barrier"], None)
    with pytest.raises(UsageError, match="only one sequence number"):
        arguments.call(["#1", "#2"])


def test_places_and_steps():
    assert arguments.place_and_calls(["train.py:40"]) == ("train.py:40", [])
    assert arguments.place_and_calls(["all_reduce", "#5"]) == ("", ["all_reduce", "#5"])
    assert arguments.step([]) == {}
    assert arguments.step(["3", "over"]) == {"n": 3, "how": "over"}
    assert arguments.step(["train.py:44"]) == {"to": "train.py:44"}
    for words in (["sideways"], ["1", "2"], ["over", "train.py:44"]):
        with pytest.raises(UsageError, match="is not a step"):
            arguments.step(words)
    with pytest.raises(UsageError, match="only one place"):
        arguments.place_and_calls(["a.py:1", "f()"])


def test_faults():
    assert arguments.fault(["other", "shape", "seq=3"]) == ("other shape", {"seq": 3})
    assert arguments.fault(["other_shape"]) == ("other_shape", {})
    kind, given = arguments.fault(["delay", "seconds=0.5", "op=all_reduce", "site=a=b.py", "message=", "group='0,1'"])
    assert kind == "delay"
    assert given == {"seconds": 0.5, "op": "all_reduce", "site": "a=b.py", "message": "", "group": "0,1"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["seq=3"], "Write the kind, then its values"),
        (["delay", "seconds=1", "late"], "Write the kind, then its values"),
        (["delay", "ranks=0,1"], "Write --ranks 0,1."),
        (["delay", "keep=True"], "Write --keep."),
        (["delay", "=3"], "has no value"),
        (["delay", "fault=x"], "has no value"),
    ],
)
def test_no_faults(words, told):
    with pytest.raises(UsageError) as raised:
        arguments.fault(words)
    assert told in str(raised.value)


def test_values_are_literals_and_never_run():
    assert arguments.given(["message=__import__('os').getpid()"]) == {"message": "__import__('os').getpid()"}
    assert arguments.given(["values=" + "(" * 500]) == {"values": "(" * 500}


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("", (0, "")),
        ("1", (1, "")),
        ("args", (0, "args")),
        (" 2 batch['an image'] ", (2, "batch['an image']")),
        ("o.groups[0]", (0, "o.groups[0]")),
    ],
)
def test_what_is_compared(line, asked):
    assert arguments.frame_and_variable(line) == asked


@pytest.mark.parametrize("line", ["-1", "--frame 1", "1x", "'a'", "99999"])
def test_what_cannot_be_compared(line):
    with pytest.raises(UsageError, match="is not a variable"):
        arguments.frame_and_variable(line)


def test_options_are_split_as_by_a_shell():
    asked = arguments.parse(
        DdpMagics.ddp_hold, """all_reduce #5 --when "step == 5 and x['a'] > 2" --ranks 0,1 --keep"""
    )
    assert (asked.call, asked.when, asked.ranks, asked.keep) == (
        ["all_reduce", "#5"],
        "step == 5 and x['a'] > 2",
        [0, 1],
        True,
    )
    assert arguments.parse(DdpMagics.ddp_hold, "--parted").parted
    asked = arguments.parse(DdpMagics.ddp_launch, "4 --fence warn --devices 1,0 --name w")
    assert (asked.n, asked.fence, asked.devices, asked.name, asked.debug) == (4, "warn", [1, 0], "w", False)


@pytest.mark.parametrize(
    ("magic", "line", "told"),
    [
        ("ddp_hold", "--foo", "unrecognized arguments: --foo"),
        ("ddp_hold", "--when 'step", "no closing quotation"),
        ("ddp_launch", "--fence maybe", "choose from"),
        ("ddp_launch", "--name 3d", "is not a valid variable name"),
        ("ddp_launch", "four", "invalid int value"),
        ("ddp_rank", "", "required: RANKS"),
        ("ddp_status", "now", "unrecognized arguments: now"),
    ],
)
def test_wrong_use_says_where_the_help_is(magic, line, told):
    with pytest.raises(UsageError) as raised:
        arguments.parse(getattr(DdpMagics, magic), line)
    assert told in str(raised.value) and f"{magic}? shows what it takes." in str(raised.value)


def test_every_magic_has_help():
    magics = [name for kind in DdpMagics.magics.values() for name in kind]
    assert len(magics) == 15
    for name in magics:
        told = getattr(DdpMagics, name).__doc__
        assert f"%{name}" in told and len(told.splitlines()) > 4, told


def test_what_is_completed_can_be_written():
    for word in WORDS["%ddp_inject"]:
        ddpnb.Fault(word.replace("_", " ")).description  # noqa: B018
    assert "all_reduce" in WORDS["%ddp_hold"]
