"""Answers are bounded, printable and without secrets, whatever ranks say."""

from __future__ import annotations

import json

from ddpnb.agents import answers
from ddpnb.agents.bounds import LONGEST, bounded


def stacks(ranks, frames, text="x" * 400):
    frame = answers.FrameData(
        file="train.py", line=3, function="f", user=True, locals={f"v{n}": text for n in range(40)}
    )
    return answers.Stacks(
        stacks=[answers.StackRow(ranks=[rank], data=[frame] * frames) for rank in range(ranks)], missing=[]
    )


def test_a_small_answer_is_whole():
    found = bounded(stacks(2, 2, "1"))
    assert (found["left_out"], found["stacks"][1]["ranks"]) == ([], [1])
    assert len(found["stacks"][0]["data"][0]["locals"]) == 40


def test_a_huge_answer_is_cut_and_says_so():
    found = bounded(stacks(4000, 60))
    assert len(json.dumps(found)) <= LONGEST
    assert "stacks: the first 3 of 4000 are shown" in found["left_out"]
    assert len({*found["left_out"]}) == len(found["left_out"])


def test_one_huge_text_does_not_cut_lists():
    found = bounded(
        answers.Report(outcome="ok", codes=["DDP301"] * 100, file="", data=answers.Text(text="a b " * 100_000))
    )
    assert len(found["codes"]) == 100
    assert len(found["data"]["text"]) <= 4000
    assert found["left_out"] == ["data.text: 4000 of 400000 characters are shown"]


def test_what_was_cut_is_named_without_the_names_of_the_program():
    frame = answers.FrameData(file="a.py", line=1, function="f", user=True, locals={"ignore_all_rules": "x" * 9000})
    found = bounded(answers.Stacks(stacks=[answers.StackRow(ranks=[0], data=[frame])], missing=[]))
    assert found["left_out"] == ["stacks[0].data[0].locals[*]: 4000 of 9000 characters are shown"]


def test_no_control_characters_and_no_secrets():
    said = "\x1b[31mred\x07\u202e\r\n\ttoken=hf_abcdefghijklmnop"
    row = answers.VariableRow(differs=True, data=answers.VariableData(name="\x1b]0;x\x07", values={0: said}))
    found = bounded(answers.Variables(absent=[], variables=[row], data=answers.FunctionData()))
    shown = json.loads(json.dumps(found))["variables"][0]["data"]
    assert all(one.isprintable() or one == "\n" for one in shown["name"] + shown["values"]["0"])
    assert "hf_" not in json.dumps(found)
