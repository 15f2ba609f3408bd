"""Each question on the control channel gets an answer, whatever is in it."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from types import SimpleNamespace

import pytest

from ddpnb.recorder.channel.control_channel import ControlChannel
from ddpnb.recorder.channel.encoding import encodable
from ddpnb.recorder.collectives.in_flight import Flight
from ddpnb.recorder.stacks.evaluation import evaluate
from ddpnb.recording import blackbox as layout
from ddpnb.recording import verbs
from ddpnb.recording.calls import CallState


class Mute(Exception):
    def __str__(self):
        raise ValueError


def channel():
    return ControlChannel(SimpleNamespace(gate=None, release=None), SimpleNamespace(tracing=None, models=None), None)


@pytest.fixture
def answers():
    """What the launcher gets for an answer of the rank."""

    def ask(verb):
        line = channel()
        line.serve(verbs.Evaluate, lambda _: verbs.Evaluated(value=verb()))
        reply = json.dumps(encodable(line.answer(verbs.message(verbs.Evaluate()))))
        return verbs.answered(verbs.Evaluate(), json.loads(reply))

    return ask


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        ("\ud800 in a file name", "\\ud800 in a file name"),
        ("Müller \U0001f642", "Müller \U0001f642"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (b"bytes", "Ynl0ZXM="),
        (1 << 5000, "<int of 5001 bits>"),
        (1 << 62, 1 << 62),
        (CallState.WAITING, int(CallState.WAITING)),
        ({"\ud800": {3: (1, 2.5, None, True)}}, {"\\ud800": {"3": [1, 2.5, None, True]}}),
        (OrderedDict(a=1), "<OrderedDict>"),
        (object(), "<object>"),
    ],
    ids=["surrogate", "letters", "nan", "infinity", "bytes", "large", "int", "enum", "nested", "subclass", "object"],
)
def test_whatever_is_in_an_answer_arrives(answers, value, arrives):
    answer = answers(lambda: value)
    assert not answer.error and answer.value == arrives


def test_an_answer_in_itself_is_bounded():
    circle: list[object] = []
    circle.append(circle)
    assert "<list>" in str(encodable(circle))


def test_an_error_that_cannot_be_said_is_an_answer_too(answers):
    def fails():
        raise Mute

    assert answers(fails).error == "Mute: its __str__ raises ValueError"
    assert evaluate("fail()", 0, 10.0, {"fail": fails})["error"].startswith(("Mute", "NameError"))


def test_a_look_asks_no_more_works_than_the_box_holds():
    asked = []

    class Work:
        def is_completed(self):
            asked.append(self)
            return False

    flight = Flight(SimpleNamespace(memory=bytearray(layout.BOX_SIZE), silent=[]))
    flight.pending.update((Work(), (0, 0, False)) for _ in range(layout.CALLS + 5000))
    flight.poll()
    assert len(asked) == layout.CALLS
    asked.clear()
    flight.poll(2)
    assert len(asked) == 1  # a call stops at the first that goes on


@pytest.fixture
def obedient():
    """A rank's control channel, and the verbs that it has obeyed."""
    line, obeyed = channel(), []
    for kind in (verbs.Hold, verbs.Unhold, verbs.Resume, verbs.Inject, verbs.Heal, verbs.Gate):
        line.serve(kind, lambda request: obeyed.append(request.VERB))
    return line, obeyed


def send(line, request):
    answer = verbs.answered(request, line.answer(verbs.message(request)))
    assert isinstance(answer, request.ANSWER)
    return answer


def test_what_is_asked_for_a_run_that_has_not_begun_waits_for_it(obedient):
    line, obeyed = obedient
    for request in (verbs.Hold(run=3), verbs.Gate(), verbs.Resume(run=3)):
        assert not send(line, request).error
    assert obeyed == ["gate"]
    line.begun(3)
    assert obeyed == ["gate", "hold", "resume"]
    send(line, verbs.Hold(run=3))
    send(line, verbs.Heal())
    assert obeyed == ["gate", "hold", "resume", "hold", "heal"]
    line.begun(4)
    assert len(obeyed) == 5


def test_an_early_request_that_fails_does_not_keep_the_run_from_beginning(obedient):
    line, obeyed = obedient
    line.serve(verbs.Hold, lambda _: 1 / 0)
    send(line, verbs.Hold(run=1))
    send(line, verbs.Inject(run=1))
    line.begun(1)
    assert obeyed == ["inject"]
