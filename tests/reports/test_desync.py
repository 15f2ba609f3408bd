import pytest

from ddpnb.recording.calls import CallState
from ddpnb.reports import desync
from ddpnb.reports.facts import CallSeen, Progress, Speaker, Waiting
from tests.reports.reading import NOISE, of, read

_REPORT = (
    "[E x.cpp:1] [Rank 0] Watchdog caught collective operation timeout\n"
    "\t - [0] Timeout at collective: ALLREDUCE, #57\n"
    "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n"
    "\t   - [4] joined but didn't finish collective #55 (count from 1)\n"
    "\t     [1] finished collective #56, but didn't join collective #57 (count from 1)\n"
    "\t - Snapshot of ranks' latest states:\n"
    "\t   #56 finished ranks:\n\t     [1] finished ALLREDUCE\n"
    "\t   #57 started ranks:\n\t     [0, 2] started ALLREDUCE\n\t     [3] started BROADCAST\n"
)


def test_the_latest_state_of_each_rank():
    facts = read(desync, _REPORT + NOISE + _REPORT)
    calls = {(call.speaker.rank, call.seq, call.signature.op, call.state) for call in of(CallSeen, facts)}
    assert calls == {
        (0, 57, "all_reduce", CallState.WAITING),
        (2, 57, "all_reduce", CallState.WAITING),
        (3, 57, "broadcast", CallState.WAITING),
        (1, 56, "all_reduce", CallState.COMPLETED),
        (4, 55, "?", CallState.WAITING),
    }
    assert [fact.enqueued for fact in of(Progress, facts) if fact.speaker == Speaker(1)] == [56]
    assert len(facts) == len(set(facts))


def test_ranks_that_joined_nothing():
    text = (
        "\t - [0] Timeout at collective: BROADCAST, #1\n\t - To our best knowledge, ranks [1, 3] are the lagging ranks that caused "
        "this\ntimeout. They never joined any collectives\n"
    )
    facts = read(desync, text)
    (waiting,) = of(Waiting, facts)
    assert (waiting.speaker, waiting.function, waiting.missing) == (Speaker(0), "broadcast", (1, 3))
    assert {fact.speaker.rank: fact.enqueued for fact in of(Progress, facts)} == {1: 0, 3: 0}


@pytest.mark.full
def test_hostile_text():
    assert not of(CallSeen, read(desync, "[" + "1," * 500_000 + "#1 started ranks:" * 10_000))
    assert len(read(desync, "[0-999999] joined but didn't finish collective #3")) <= 100_001


def test_reports_are_indented_as_the_logger_likes():
    text = _REPORT.replace("\t ", " " * 16)
    assert set(read(desync, text)) == set(read(desync, _REPORT))
