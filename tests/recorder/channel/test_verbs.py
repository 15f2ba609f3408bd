"""Requests and answers of the control channel, as JSON and back; what another process may send instead."""

from __future__ import annotations

import json

import pytest

from ddpnb.recorder.channel.encoding import encodable
from ddpnb.recording import verbs

ASKED = [
    verbs.Snapshot(locals=False),
    verbs.Evaluate(expression=verbs.LongText("x" * 10_000), frame=2, timeout=0.5),
    verbs.Hold(hold={"op": "all_reduce"}, keep=True, run=4),
    verbs.Release(connections=[[3, ["::1", 1], ["::1", 2]]], both_ways=True),
    verbs.Trace(turns={"0": 7}, modules=True),
    verbs.Pieces(name="w", numbers=(0, 5)),
]
TOLD = [
    verbs.Looked(pid=7, stacks=[{"name": "MainThread"}], holders=(3, 4), wakes_at=1.5),
    verbs.Evaluated(text="1", value=1, where="train.py:3"),
    verbs.Done(),
    verbs.Done(error="OSError: no"),
    verbs.Done(),
    verbs.PiecesRead(pieces=(verbs.Piece(code="f", values=bytes(range(256))),)),
]


def sent(value):
    return json.loads(json.dumps(encodable(value)))


@pytest.mark.parametrize(("asked", "answer"), [*zip(ASKED, TOLD, strict=True)], ids=[one.VERB for one in ASKED])
def test_both_sides_read_what_the_other_one_writes(asked, answer):
    assert verbs.requested(sent(verbs.message(asked))) == asked
    assert verbs.answered(asked, sent(verbs.reply(answer))) == answer


def test_facts_within_facts():
    model = {"step": 3, "tensors": [["w", 1 << 63, "nan"]]}
    found = verbs.answered(
        verbs.Traces(), sent(verbs.reply(verbs.Traced(models={"0": verbs.Model(**model, buffers=[])})))
    )
    assert not found.error and found.models == {"0": verbs.Model(**model)}
    wrong = {"models": {"0": {"step": "three"}}}
    assert "traces is invalid (models)" in verbs.answered(verbs.Traces(), {"facts": wrong}).error


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ({}, "no facts"),
        ({"status": "ok", "pid": 3, "stacks": []}, "no facts"),  # of an older rank
        ({"facts": [1]}, "no facts"),
        ({"facts": {"pid": "x"}}, "pid"),
        ({"facts": {"wakes_at": True}}, "wakes_at"),
        ({"facts": {"holders": [1, "x"]}}, "holders"),
        ({"facts": {"waits_on": "x" * 5000}}, "waits_on"),
        ({"facts": {"mood": "good"}}, "mood"),
        ({"facts": {"error": 3}}, "error"),
    ],
)
def test_an_answer_that_is_none_is_an_error_that_names_the_verb(told, wrong):
    found = verbs.answered(verbs.Snapshot(), told)
    assert found.error.startswith(f"the answer to snapshot is invalid ({wrong})") and "another version" in found.error
    assert found == verbs.Looked(error=found.error)


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        ({}, "no such verb: None"),
        ({"verb": ["x"], "facts": {}}, "no such verb"),
        ({"verb": "shout", "facts": {}}, "no such verb: shout"),
        ({"verb": "hold", "hold": None, "run": 3}, "the request hold is invalid"),  # of an older launcher
        ({"verb": "step", "facts": {"count": "2; import os"}}, "the request step is invalid .count."),
    ],
)
def test_a_request_that_is_none_is_refused(message, wrong):
    with pytest.raises(ValueError, match=wrong):
        verbs.requested(message)
