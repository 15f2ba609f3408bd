"""The launcher's end of the link to an agent that answers anything, late or never."""

from __future__ import annotations

import time
from concurrent.futures import Future

import pytest

from ddpnb.errors import WorldError
from ddpnb.ranks.remote.link import Link
from ddpnb.ranks.remote.mirror import Mirror
from tests.waiting import until

SAMPLE = {"exit": None, "sample": ["R", 1.0, 0.0, [], 7], "gpu": {}, "queued": None}


class Agent:
    """Answers looks with ``ranks``, and requests with ``answers``, one after the other; None: not at all."""

    def __init__(self):
        self.ranks = {"5": SAMPLE}
        self.more = {}
        self.answers = []
        self.numbers = []

    def send(self, message):
        future = Future()
        if message["kind"] == "request":
            self.numbers.append(message["number"])
            answer = self.answers.pop(0)
        else:
            now = time.monotonic_ns()
            look = {"status": "ok", "serial": 1, "ranks": self.ranks, "starts": {}, "folders": {}, "clock": [now, now]}
            answer = {"content": {**look, **self.more}}
        if answer is not None:
            future.set_result(answer)
        return future


@pytest.fixture
def agent():
    return Agent()


@pytest.fixture
def link(agent):
    made = Link("beta", agent.send, Mirror())
    yield made
    made.close()


def test_what_a_look_has_shown(agent, link):
    until(lambda: link.state(5) is not None)
    assert link.state(5)["sample"].memory == 7 and link.state(6) is None
    agent.ranks = {}
    assert link.look_anew(5) and link.state(5) is None


@pytest.mark.parametrize(
    "more",
    [{"folders": ["a"]}, {"folders": {"/": {}}}, {"clock": [1]}, {"serial": None}, {"starts": {"x": 1}}, {"ranks": {"1": {}}},
     {"ranks": {"1": {**SAMPLE, "sample": ["R", 1, 1, [], float("inf")]}}}],
)  # fmt: skip
def test_a_look_that_is_none_is_said_and_the_next_one_is_taken(agent, link, more):
    until(lambda: link.state(5) is not None)
    agent.more = more
    until(lambda: "not understood" in link.trouble)
    assert link.state(5) is not None
    agent.more = {}
    until(lambda: not link.trouble)


def test_a_request_that_was_lost_is_sent_again_under_its_number():
    agent = Agent()
    link = Link("beta", agent.send, Mirror(), ask_after=lambda: None)
    agent.answers = [{"lost": True}, {"content": 3}]
    assert link.request("children", 5) == 3
    assert len(agent.numbers) == 2 and len({*agent.numbers}) == 1
    link.close()


def test_a_request_that_is_refused_lost_or_not_answered(agent, link):
    agent.answers = [{"error": "KeyError: 'x'"}, {"lost": True}, None]
    with pytest.raises(WorldError, match=r"host beta refused \(x\): KeyError"):
        link.request("x")
    for _ in range(2):
        with pytest.raises(WorldError, match="host beta does not answer"):
            link.request("children", timeout=0.1)
