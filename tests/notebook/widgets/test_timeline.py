"""The time line, on Python's side: what it sends to a page, and what it says where there is none."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

from ddpnb.notebook.widgets.timeline import Timeline
from ddpnb.recording.calls import Call, CallState, Group, Signature, Site
from ddpnb.recording.ending import Ending
from ddpnb.recording.recording import RankRecord, Recording
from tests.rules.recordings import Rank, diagnose, line, record

GROUP = Group((0, 1), label="default_pg")


def call(number, at, done=0, site="/train.py"):
    state = CallState.COMPLETED if done else CallState.WAITING
    return Call(number, GROUP, number + 1, Signature("all_reduce"), Site(site, 5, "main"), state, entered_ns=at * 10**6, done_ns=done * 10**6)  # fmt: skip


def two(*calls):
    return Recording(2, {rank: RankRecord(rank, calls=calls) for rank in range(2)})


@pytest.fixture
def sent(monkeypatch):
    """The messages of all time lines of this test."""
    found = []
    monkeypatch.setattr(Timeline, "send", lambda self, content, buffers=None: found.append((content, buffers)))
    monkeypatch.setattr(Timeline, "send_state", lambda self, key=None: found.append((key, None)))
    return found


def test_the_state_holds_all_there_is(sent):
    widget = Timeline(two(call(0, 10, 20)))
    columns = widget.get_state()["columns"]
    head = columns["head"]
    assert head["whole"] and head["count"] == 2 and head["version"] == widget.version == 0
    assert [row["rank"] for row in head["rows"]] == [0, 1]
    begin = np.frombuffer(columns["events"][:16], "<f8")
    assert begin.tolist() == [0.0, 0.0] and len(columns["events"]) == 2 * 35
    assert len(columns["places"]) == 12 * head["places"]


def test_news_cost_as_much_as_there_is_news(sent):
    widget = Timeline(two(*(call(n, 10 * n + 10, 10 * n + 15) for n in range(100))))
    widget.get_state()
    widget.add({0: [call(100, 2000)]}, now_ns=3_000_000_000)
    (content, buffers), *_ = [one for one in sent if one[1] is not None]
    assert content["kind"] == "news" and content["head"]["version"] == widget.version == 1
    assert len(buffers[0]) == 35 and struct.unpack_from("<d", buffers[0])[0] == pytest.approx(1.99)
    assert content["head"]["now"] == pytest.approx(2.99) and not content["head"]["texts"]


def test_another_recording_is_shown_instead(sent):
    widget = Timeline(two(call(0, 10, 20)))
    widget.show(two())
    assert ("columns", None) in sent and widget.get_state()["columns"]["head"]["count"] == 0
    assert widget.version == 1


def test_a_page_that_has_missed_something_asks(sent):
    widget = Timeline(two(call(0, 10, 20)))
    widget._take(widget, {"action": "want"}, [])
    assert sent[-1] == ("columns", None)


def test_an_action_comes_through():
    told = []
    widget = Timeline(on_action=lambda name, values: told.append((name, values)))
    widget._take(widget, {"action": "select", "values": {"rank": "1", "number": "57"}}, [])
    assert told == [("select", {"rank": "1", "number": "57"})]


def test_text():
    assert Timeline().text == "no collective recorded"
    taken = record(
        Rank(0, 2).calls("all_reduce", line(5)).waits("all_reduce", line(5)),
        Rank(1, 2).calls("all_reduce", line(5)).finishes(),
    )
    widget = Timeline(taken, diagnose(taken))
    assert widget.text.splitlines() == [
        "rank 0: all_reduce #1, all_reduce #2 waits for 1",
        "rank 1: all_reduce #1, finished: never called all_reduce #2",
    ]
    assert repr(widget) == widget.text == widget._repr_mimebundle_()[0]["text/plain"]


def test_texts_are_printable_and_short():
    widget = Timeline(two(call(0, 10, 20, site="/\x1b[31m\ud800" + "x" * 1000)))
    texts = widget.get_state()["columns"]["head"]["texts"]
    assert all(len(text) <= 400 and "\x1b" not in text for text in texts)
    "".join(texts).encode()


def test_an_unknown_trait_is_refused():
    with pytest.raises(TypeError, match="colour"):
        Timeline(colour="red")


def test_a_page_is_told_where_runs_begin_and_end(sent):
    ending = Ending("raised", 1, "ValueError", "bad", at_ns=40 * 10**6)
    widget = Timeline()
    widget.begin(two(), name="run 1", at_ns=5 * 10**6)
    widget.add({rank: [call(0, 10, 20), call(1, 30)] for rank in range(2)})
    over = Recording(2, {rank: RankRecord(rank, 7, (call(1, 30),), ending=ending) for rank in range(2)}, taken_ns=10**9)
    widget.add({}, over)
    head = sent[-1][0]["head"]
    assert head["runs"] == [{"number": 1, "name": "run 1", "begin": 0.0, "end": pytest.approx(0.035)}]
    assert head["count"] == 2 and "past" not in head  # the calls that were open have ended
    assert [(row["ended"], row["failed"], row["doing"]) for row in head["rows"]] == [(pytest.approx(0.035), True, "ValueError: bad")] * 2  # fmt: skip
    widget.begin(two(), name="run 2", at_ns=90 * 10**6)
    assert sent[-1] == ("columns", None)
    head = widget.get_state()["columns"]["head"]
    assert [run["name"] for run in head["runs"]] == ["run 1", "run 2"] and head["count"] == 4
    assert [[row["rank"] for row in run] for run in head["past"]] == [[0, 1]] and len(head["rows"]) == 2
    json.dumps(head)
