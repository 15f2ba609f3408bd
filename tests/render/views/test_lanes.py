"""Lanes: who waited how long in which call; what comes later; marks; and recordings that make no sense."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ddpnb.recording.calls import NO_SITE, Call, CallState, Group, Signature, Site
from ddpnb.recording.ending import Ending
from ddpnb.recording.events.startup import InitProcessGroup
from ddpnb.recording.findings import Diagnosis, Finding
from ddpnb.recording.marks import Mark
from ddpnb.recording.rank_state import RankState
from ddpnb.recording.recording import Process, RankRecord, Recording
from ddpnb.recording.stacks import Frame, Stack
from ddpnb.render.views import lane_calls
from ddpnb.render.views import lanes as analysis
from ddpnb.render.views.columns import Shown
from ddpnb.render.views.lanes import Lanes, lanes
from ddpnb.rules.finding_types import type_of
from tests.rules.recordings import Rank, diagnose, line, record, world_group

MS = 1_000_000
BEGAN = 10**12
WORLD = world_group(3)
REDUCE = Signature("all_reduce", ((4,),), ("float32",), agreed="all_reduce|4")
SITE = Site("/home/user/train.py", 57, "main")


def call(number, at, done=0, *, group=WORLD, signature=REDUCE, state=None, **more):
    """A call that was made ``at`` milliseconds and done at ``done``; without an end a thread waits in it."""
    if state is None:
        state = CallState.COMPLETED if done else CallState.WAITING
    entered, ended = BEGAN + int(at * MS), BEGAN + int(done * MS) if done else 0
    fields = {"seq": number + 1, "entered_ns": entered, "done_ns": ended, **more}
    return Call(number, group, signature=signature, site=SITE, state=state, **fields)


def recorded(*made, taken=100, **more):
    """A Recording of the calls of ranks 0, 1, ..."""
    records = {rank: RankRecord(rank, calls=tuple(calls), **more) for rank, calls in enumerate(made)}
    return Recording(len(made), records, taken_ns=BEGAN + int(taken * MS))


def spans(shown, rank):
    """Milliseconds since the beginning."""
    return [tuple(round(at * 1e3, 3) for at in (one.begin, one.met, one.end)) for one in shown.spans(rank)]


# -- waiting and the collective


def test_waits_until_the_last_has_come():
    shown = lanes(recorded([call(0, 0, 9)], [call(0, 2, 9.5)], [call(0, 7, 9)]))
    assert [spans(shown, rank) for rank in range(3)] == [[(0, 7, 9)], [(2, 7, 9.5)], [(7, 7, 9)]]


def test_an_open_call_waits_until_now():
    shown = lanes(recorded([call(0, 0)], [call(0, 2)], [], taken=50))
    assert spans(shown, 0) == [(0, 50, 50)]
    assert shown.spans(0)[0].shown is Shown.OPEN
    assert shown.doing(0) == "all_reduce #1 waits for 2"


def test_who_has_all_others_is_in_the_collective():
    shown = lanes(recorded([call(0, 0)], [call(0, 2)], [call(0, 3)], taken=10))
    assert spans(shown, 0) == [(0, 3, 10)]
    assert shown.doing(0) == "all_reduce #1"


def test_another_call_at_the_same_place_is_no_arrival():
    barrier = Signature("barrier", agreed="barrier")
    shown = lanes(recorded([call(0, 0)], [call(0, 2, signature=barrier)], [call(0, 3)], taken=10))
    assert spans(shown, 0) == [(0, 10, 10)]
    assert shown.doing(0) == "all_reduce #1 waits for 1"
    assert shown.doing(1) == "barrier #1 waits for 0 and 2"


def test_in_a_broadcast_all_wait_for_the_root_alone():
    broadcast = Signature("broadcast", ((4,),), ("float32",), root=1, agreed="b")
    made = [[call(0, at, 20, signature=broadcast)] for at in (0, 5, 9)]
    shown = lanes(recorded(*made))
    assert [spans(shown, rank)[0][1] for rank in range(3)] == [5, 5, 9]


def test_of_a_reduction_to_a_root_only_the_root_waits():
    reduce = Signature("reduce", ((4,),), ("float32",), root=0, agreed="r")
    shown = lanes(recorded(*[[call(0, at, 20, signature=reduce)] for at in (0, 5, 9)]))
    assert [spans(shown, rank)[0][1] for rank in range(3)] == [9, 5, 9]


def test_a_receive_waits_for_its_send():
    send = call(0, 8, 9, signature=Signature("send"), seq=0, peer=1, turn=1)
    receive = call(0, 1, 9, signature=Signature("recv"), seq=0, peer=0, turn=1)
    shown = lanes(recorded([send], [receive]))
    assert spans(shown, 1) == [(0, 7, 8)]
    assert [one.title for one in (*shown.spans(0), *shown.spans(1))] == ["send to 1", "recv from 0"]


def test_a_message_whose_other_end_is_unknown_has_no_waiting():
    receive = call(0, 0, 9, signature=Signature("recv_any_source"), seq=0)
    assert spans(lanes(recorded([receive])), 0) == [(0, 0, 9)]


def test_an_end_that_nobody_saw_is_not_before_all_had_come():
    """DDP's reducer waits in C++: its calls stay issued for ever."""
    left = [[call(n, 10 * n + rank, state=CallState.ISSUED) for n in range(2)] for rank in range(3)]
    shown = lanes(recorded(*left))
    assert spans(shown, 0) == [(0, 2, 2), (10, 12, 12)]
    assert shown.spans(0)[0].shown is Shown.LEFT


def test_an_end_that_was_seen_when_the_next_call_came_was_earlier():
    """The door looks after calls that nobody waits for when the next one comes."""
    polled = [[call(0, rank, 49.99), call(1, 50, 51)] for rank in range(3)]
    shown = lanes(recorded(*polled))
    assert spans(shown, 0) == [(0, 2, 2), (50, 50, 51)]
    assert shown.spans(0)[0].shown is Shown.LEFT
    waited = [[call(0, rank, 49.5), call(1, 50, 51)] for rank in range(3)]
    assert spans(lanes(recorded(*waited)), 0)[0] == (0, 2, 49.5)


def test_whoever_came_to_a_later_call_came_to_the_earlier_too():
    """The older calls of rank 2 have left the ring."""
    first = [call(0, 0, 4), call(1, 10, 14)]
    shown = lanes(recorded(first, first, first[1:]))
    assert spans(shown, 0)[0] == (0, 0, 4)
    assert shown.columns().met[2:].tolist() == pytest.approx([0.0, 0.01])


def test_a_held_call_is_not_waited_in_and_nobody_has_come():
    shown = lanes(recorded([call(0, 0)], [call(0, 1, state=CallState.HELD)], [call(0, 2)], taken=9))
    assert shown.spans(1)[0].shown is Shown.HELD
    assert shown.doing(0) == "all_reduce #1 waits for 1"


def test_a_failed_call_ends():
    shown = lanes(recorded([call(0, 0, 5, state=CallState.FENCED)], [], []))
    assert shown.spans(0)[0].shown is Shown.FAILED
    assert spans(shown, 0) == [(0, 0, 5)]


# -- what comes later


def test_news_are_what_is_new():
    shown = lanes(recorded([call(0, 0, 9)], [call(0, 2, 9)], [call(0, 7, 9)]))
    first = shown.columns()
    assert first.whole and len(first.events) == 3
    shown.add(0, [call(1, 20)])
    news = shown.news()
    assert not news.whole and news.events["number"].tolist() == [1] and not news.texts and not len(news.places)
    assert np.isinf(news.events["end"]).all()
    shown.add(1, [call(1, 21)])
    shown.add(2, [call(1, 22)])
    news = shown.news()
    assert news.events["lane"].tolist() == [1, 2] and news.met.tolist() == pytest.approx([0.022])
    assert not len(shown.news().events)


def test_a_call_that_comes_again_is_the_same_call():
    shown = lanes(recorded([call(0, 0)], [], []))
    shown.columns()
    shown.add(0, [call(0, 0, 5), call(1, 6)])
    assert [one.number for one in shown.spans(0)] == [0, 1]
    assert shown.spans(0)[0].shown is Shown.DONE
    assert shown.news().events["number"].tolist() == [0, 1]


def test_calls_come_in_any_order():
    shown = Lanes([0])
    for number in (3, 1, 2, 0, 3):
        shown.add(0, [call(number, 10 * number, 10 * number + 5, group=world_group(1))])
    assert [one.number for one in shown.spans(0)] == [0, 1, 2, 3]


def test_a_held_call_begins_when_it_is_let_go_on():
    shown = lanes(recorded([call(0, 0)], [call(0, 1, state=CallState.HELD)], [call(0, 2)]))
    shown.add(1, [call(0, 40, 50)])
    assert spans(shown, 1) == [(40, 40, 50)] and spans(shown, 0)[0][1] == 40


def test_a_refused_call_has_not_come():
    shown = Lanes(range(3))
    for rank in range(3):
        shown.add(rank, [call(0, rank)])
    shown.add(2, [call(0, 2, 3, state=CallState.REFUSED)])
    assert shown.doing(0) == "all_reduce #1 waits for 2"


def test_a_rank_that_comes_later_gets_a_lane():
    shown = Lanes()
    shown.add(5, [call(0, 0)])
    shown.add(2, [call(0, 0)])
    assert [lane.rank for lane in shown.lanes] == [5, 2]


def test_the_oldest_are_let_go(monkeypatch):
    monkeypatch.setattr(lane_calls, "KEEP", 10)
    monkeypatch.setattr(analysis, "KEEP", 10)
    shown = Lanes([0, 1])
    group = world_group(2)
    for number in range(21):
        for rank in (0, 1):
            shown.add(rank, [call(number, 10 * number + rank, 10 * number + 3, group=group)])
    news = shown.news()
    assert news.whole and len(news.places) < 20
    assert spans(shown, 0)[-1] == (200, 201, 203) and spans(shown, 0)[0] == (110, 111, 113)
    shown.add(0, [call(21, 210, group=group)])
    assert shown.doing(0) == "all_reduce #22 waits for 1"


# -- what is written into them


def test_the_call_that_does_not_fit_is_marked():
    barrier = Rank(1, 3).calls("all_reduce", line(5)).waits("barrier", line(9))
    taken = record(
        Rank(0, 3).calls("all_reduce", line(5)).waits("all_reduce", line(5)),
        barrier,
        Rank(2, 3).calls("all_reduce", line(5)).waits("all_reduce", line(5)),
    )
    marked = {lane.rank: lane.mark for lane in lanes(taken, diagnose(taken)).lanes}
    assert marked[0] is None and marked[1] is not None
    assert (marked[1].kind, marked[1].number) == ("mismatch", 1)
    assert marked[1].words == "barrier #2: not the call of the other ranks"


def test_one_that_never_came_is_absent_since_the_first_waits():
    taken = record(
        Rank(0, 3).calls("all_reduce", line(5)).waits("all_reduce", line(5)),
        Rank(1, 3).calls("all_reduce", line(5)).finishes(),
        Rank(2, 3).calls("all_reduce", line(5)).waits("all_reduce", line(5)),
    )
    shown = lanes(taken, diagnose(taken))
    lane = shown.lanes[1]
    assert lane.mark is not None and lane.mark.kind == "absent"
    assert lane.mark.words == "finished: never called all_reduce #2"
    assert lane.since == shown.spans(0)[1].begin
    assert shown.lanes[0].doing == "all_reduce #2 waits for 1"


def test_words_go_when_the_rank_moves_on():
    shown = lanes(recorded([call(0, 0)], [], []))
    shown.mark(recorded([call(0, 0)], [], [], process=Process("idle", 1.0)))
    assert shown.lanes[0].doing == "all_reduce #1 waits for 1 and 2" and shown.lanes[0].state == "waiting"
    shown.add(0, [call(0, 0, 5)])
    assert shown.lanes[0].doing == ""


def test_computing_ends_where_a_rank_stands_elsewhere():
    shown = lanes(recorded([call(0, 0, 5)], taken=1000, process=Process("idle", 0.8)))
    assert shown.lanes[0].until == pytest.approx(0.2) and shown.lanes[0].state is RankState.BLOCKED


def test_a_rank_may_come_to_wait_for_what_it_had_left():
    """As at the end of a backward pass, where DDP waits in C++."""
    left = call(0, 10, state=CallState.ISSUED)
    torch = Stack("main", (Frame("/venv/torch/nn/parallel.py", 9, "wait", user=False),), 7, main=True)
    idle = RankRecord(0, calls=(left,), stacks=(torch,), process=Process("idle", 0.08))
    shown = lanes(Recording(3, {0: idle, 1: RankRecord(1), 2: RankRecord(2)}, taken_ns=BEGAN + 100 * MS))
    lane = shown.lanes[0]
    assert lane.stands_in == 0 and lane.doing == "all_reduce #1 waits for 1 and 2"
    assert lane.until == pytest.approx(0.01)  # it has been idle since then


def test_of_many_ranks_those_that_tell_the_most():
    made = {rank: RankRecord(rank, calls=(call(0, rank, 200, group=world_group(100)),)) for rank in range(100)}
    found = Diagnosis("hang", (Finding(type_of("DDP301"), "", (97,), (42, 98)),))
    shown = lanes(Recording(100, made), found, most=4)
    assert [lane.rank for lane in shown.lanes] == [0, 42, 97, 98]
    assert shown.of == 100
    assert spans(shown, 0)[0][1] == 99  # the others count


def test_of_very_many_ranks_some_of_each_kind():
    """A rank that ended has a lane although no finding names it, and hundreds that are alike do not hide it."""
    world = world_group(500)
    made = {rank: RankRecord(rank, calls=(call(0, rank, group=world),)) for rank in range(500)}
    made[333] = replace(made[333], ending=Ending("finished", at_ns=BEGAN + 9 * MS))
    found = Diagnosis("hang", (Finding(type_of("DDP301"), "", (77,), tuple(range(78, 300))),))
    shown = {lane.rank for lane in lanes(Recording(500, made), found).lanes}
    assert {77, 78, 333} <= shown and len(shown) < 30


# -- recordings that make no sense


def test_nothing():
    assert lanes(Recording(0, {})).lanes == ()
    assert lanes(recorded([], [])).count == 0


def test_moments_that_are_missing_are_beside_their_neighbours():
    made = [call(0, 0, 5), replace(call(1, 0), entered_ns=0), call(2, 20, 25)]
    assert [one.begin for one in lanes(recorded(made)).spans(0)] == [0.0, 0.0, 0.02]
    assert lanes(recorded([replace(call(0, 0), entered_ns=0)], taken=0)).now >= 0


def test_clocks_that_disagree_give_no_waiting():
    hour = 3_600_000
    shown = lanes(recorded([call(0, 0, 5)], [call(0, hour, hour + 5)], [call(0, 1, 5)]))
    assert spans(shown, 0) == [(0, 0, 5)]


@pytest.mark.parametrize(
    "odd",
    [
        {"group": Group(())},
        {"group": Group((7, 8))},
        {"seq": 1 << 70},
        {"seq": -1},
        {"number": -1},
        {"entered_ns": -1},
        {"entered_ns": 1 << 80},
        {"entered_ns": 1 << 2000, "done_ns": 1 << 2000},
        {"done_ns": 1},
        {"signature": Signature("broadcast", root=99)},
        {"signature": Signature("gather", root=-1)},
        {"signature": Signature("recv"), "peer": 1 << 70, "turn": 1, "seq": 0},
        {"signature": Signature("?")},
        {"site": NO_SITE},
    ],
)
def test_whatever_is_recorded_is_drawn(odd):
    made = [replace(call(n, n, n + 0.5), **(odd if n == 1 else {})) for n in range(3)]
    taken = recorded(made, [call(0, 0)], made[1:])
    shown = lanes(taken, diagnose(taken))
    shown.add(0, made)
    for rank in range(3):
        for one in shown.spans(rank):
            assert one.begin <= one.met <= one.end
    assert len(shown.columns().events) == len(shown.news().events) + shown.count


def test_a_rank_that_starts_ended_or_is_gone():
    records = {
        0: RankRecord(0, history=(InitProcessGroup(state="open", began_ns=BEGAN),), process=Process("idle", 3.0)),
        1: RankRecord(1, ending=Ending("died", -9, at_ns=BEGAN + MS)),
        2: RankRecord(2, process=Process("gone")),
        3: RankRecord(3, process=Process("stopped", float("inf"))),
    }
    shown = lanes(Recording(4, records, taken_ns=BEGAN + 9 * MS))
    assert [lane.state for lane in shown.lanes] == ["starting", "ended", "unknown", "unresponsive"]
    assert "waits for" in shown.lanes[0].doing and shown.lanes[1].doing == "killed (SIGKILL)"


# -- several runs


def run_of(shown, made, *, at, ended=(), taken=None, pids=(11, 12)):
    """One run of two ranks: their calls, then what is known of them."""
    shown.begin(range(2), f"run {at}", BEGAN + at * MS)
    for rank, calls in enumerate(made):
        shown.add(rank, calls)
    tell(shown, made, ended, taken, pids)


def tell(shown, made, ended=(), taken=None, pids=(11, 12)):
    records = {
        rank: RankRecord(rank, pids[rank], tuple(calls), ending=dict(ended).get(rank), process=Process("idle", 0.01))
        for rank, calls in enumerate(made)
    }
    shown.mark(Recording(2, records, taken_ns=BEGAN + int(taken * MS) if taken else 0))


def finished(at, how="finished", code=0):
    return Ending(how, code, at_ns=BEGAN + at * MS)


PAIR = world_group(2)
BOTH = [[call(0, 10, 19, group=PAIR), call(1, 20, 29, group=PAIR)], [call(0, 12, 19, group=PAIR), call(1, 21, 29, group=PAIR)]]  # fmt: skip


def later(by):
    """The same calls of new processes: their numbers begin again, at the door and in the group."""
    return [[replace(one, entered_ns=one.entered_ns + by * MS, done_ns=one.done_ns + by * MS) for one in own] for own in BOTH]  # fmt: skip


def test_runs_are_kept_apart():
    shown = Lanes()
    run_of(shown, BOTH, at=5, ended={0: finished(30), 1: finished(31)}.items(), taken=500)
    assert [(run.name, run.end) for run in shown.runs] == [("run 5", pytest.approx(0.026))] and shown.now == shown.runs[0].end  # fmt: skip
    run_of(shown, later(1000), at=1002, taken=1035, pids=(21, 22))
    first, second = shown.runs
    assert [first.begin, second.begin] == pytest.approx([0.0, 0.997]) and np.isinf(second.end)
    assert [lane.until for lane in shown.past[0]] == pytest.approx([0.025, 0.026])
    assert [lane.begin for lane in shown.lanes] == pytest.approx([1.005, 1.007])
    assert shown.count == 8 and [one.number for one in shown.spans(1)] == [2, 3]
    assert spans(shown, 0) == [(1005, 1007, 1014), (1015, 1016, 1024)]  # nobody of the first run came to these
    events = shown.columns().events
    assert events["number"].tolist() == [0, 1, 2, 3] * 2
    begin = events["begin"][events["lane"] == 0]
    assert begin[3] - begin[1] == pytest.approx(1.0, abs=1e-6)


def test_holds_are_kept_with_their_runs():
    shown = Lanes()
    run_of(shown, BOTH, at=5, taken=40)
    shown.hold(0, [Mark(0, "held", BEGAN + 20 * MS, 1)])
    assert shown.holds(0) == [pytest.approx((0.015, shown.now))] and shown.holds(1) == []
    shown.news()
    shown.hold(0, [Mark(1, "resumed", BEGAN + 30 * MS, 1)])
    assert [hold for _, hold in shown.news().holds] == shown.holds(0) == [pytest.approx((0.015, 0.025))]
    run_of(shown, later(1000), at=1002, taken=1035, pids=(21, 22))
    shown.hold(0, [Mark(2, "held", BEGAN + 1010 * MS, 1), Mark(3, "end", BEGAN + 1020 * MS)])
    assert [round(end - begin, 6) for begin, end in shown.holds(0)] == [0.01, 0.01]
    assert len(shown.columns().holds) == 2 and not shown.news().holds


def test_a_run_without_calls_is_not_kept():
    shown = Lanes()
    shown.begin()
    run_of(shown, [[], []], at=5)
    run_of(shown, BOTH, at=9)
    assert [run.name for run in shown.runs] == ["run 9"] and shown.past == ()


def test_the_oldest_runs_are_dropped(monkeypatch):
    monkeypatch.setattr(analysis, "MOST_RUNS", 3)
    shown = Lanes()
    for n in range(6):
        run_of(shown, later(1000 * n), at=1000 * n + 2, pids=(2 * n + 1, 2 * n + 2))
    assert [run.name for run in shown.runs] == ["run 3002", "run 4002", "run 5002"]
    assert len(shown.past) == 2 and shown.count == 12
    shown.add(0, [call(2, 5040, group=PAIR)])
    assert shown.doing(0) == "all_reduce #3 waits for 1" and shown.news().whole


def test_of_many_calls_the_oldest_runs_go_with_theirs(monkeypatch):
    monkeypatch.setattr(lane_calls, "KEEP", 3)
    monkeypatch.setattr(analysis, "KEEP", 3)
    shown = Lanes()
    for n in range(4):
        run_of(shown, later(1000 * n), at=1000 * n + 2, pids=(2 * n + 1, 2 * n + 2))
    assert [run.name for run in shown.runs] == ["run 1002", "run 2002", "run 3002"]
    first = shown.past[0][1]  # of its calls one is left: before that nothing is known any more
    assert first.begin == shown.columns().events["begin"][-5] == pytest.approx(1.019)


def test_a_killed_rank_waits_no_longer():
    open_ = [[call(0, 10, group=PAIR)], []]
    shown = Lanes()
    run_of(shown, open_, at=5, taken=100)
    shown.news()
    tell(shown, open_, {0: finished(60, "died", -9)}.items(), 500)
    lane = shown.lanes[0]
    assert (lane.ended, lane.failed, lane.doing) == (pytest.approx(0.055), True, "killed (SIGKILL)")
    assert spans(shown, 0) == [(5, 55, 55)] and shown.doing(0) == ""
    assert shown.news().events["end"].tolist() == pytest.approx([0.055])  # the page is told
    assert np.isinf(shown.runs[0].end)  # the other one is still in it
    shown.add(1, [call(0, 300, group=PAIR)])
    assert spans(shown, 0) == [(5, 55, 55)]  # it was never in the collective


def test_a_replaced_rank_waits_no_longer():
    open_ = [[call(0, 10, group=PAIR)], [call(0, 12, group=PAIR, state=CallState.ISSUED)]]
    shown = Lanes()
    run_of(shown, open_, at=5, taken=100)
    tell(shown, [[], []], taken=900, pids=(31, 32))
    assert [lane.doing for lane in shown.lanes] == ["replaced by a new process"] * 2
    assert shown.runs[0].end == shown.now == pytest.approx(0.095)  # when they were last seen in it
    assert all(one.end <= shown.now for rank in (0, 1) for one in shown.spans(rank))


def test_where_a_rank_stood_it_did_not_compute_until_it_was_ended():
    left = [[call(0, 10, group=PAIR, state=CallState.ISSUED)], []]
    torch = Stack("main", (Frame("/venv/torch/nn/parallel.py", 9, "wait", user=False),), 7, main=True)
    waiting = RankRecord(0, 11, tuple(left[0]), stacks=(torch,), process=Process("idle", 0.05))
    shown = Lanes()
    shown.begin(range(2), "run 1", BEGAN + 5 * MS)
    shown.add(0, left[0])
    shown.mark(Recording(2, {0: waiting, 1: RankRecord(1, 12)}, taken_ns=BEGAN + 100 * MS))
    tell(shown, left, {0: finished(200, "died", -9)}.items(), 300)
    lane = shown.lanes[0]
    assert lane.stands_in == 0 and (lane.until, lane.ended) == (pytest.approx(0.045), pytest.approx(0.195))


def test_a_rank_of_which_nothing_is_known_to_run_does_not_compute():
    shown = Lanes()
    shown.begin(range(2), "run 1", BEGAN)
    shown.mark(Recording(2, {rank: RankRecord(rank) for rank in range(2)}, taken_ns=BEGAN + 100 * MS))
    assert [lane.until for lane in shown.lanes] == [lane.begin for lane in shown.lanes]


def test_where_calls_were_lost_nothing_is_drawn():
    shown = Lanes()
    run_of(shown, BOTH, at=5, taken=35)
    run_of(shown, later(1000), at=1002, taken=1035, pids=(21, 22))
    shown.lose()
    shown.add(0, [call(90, 5000, 5009, group=PAIR), call(91, 5010, group=PAIR)])
    tell(shown, [[call(91, 5010, group=PAIR)], []], taken=5050, pids=(21, 22))
    assert shown.news().whole and shown.count == 6 and [one.number for one in shown.spans(0)] == [92, 93]
    assert shown.lanes[0].begin == pytest.approx(4.995) and len(shown.past[0]) == 2
    assert shown.past[0][0].begin == pytest.approx(0.005)
