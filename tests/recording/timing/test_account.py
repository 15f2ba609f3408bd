"""The time account, from events written by hand. Times are milliseconds."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from ddpnb.recording.account import Account
from ddpnb.recording.calls import Call, CallState, Group, Signature, Site
from ddpnb.recording.ending import Ending
from ddpnb.recording.marks import HeldTime, Mark
from ddpnb.recording.recording import RankRecord, Recording
from ddpnb.recording.replicas import Model, TensorSpec
from ddpnb.recording.timing import timeline
from ddpnb.recording.timing.account import Ledger, account
from ddpnb.render.account import TimeAccount
from tests.rules.recordings import Rank, line, record

MS = 1_000_000
BASE = 100_000 * MS
MAIN, OTHER = 7, 8
SITE = Site("train.py", 57, "main")


class Story:
    """What one rank did, at which millisecond."""

    def __init__(self, *group: int, site: Site = SITE) -> None:
        self.group = Group(group)
        self.site = site
        self.calls: list[Call] = []
        self.marks: list[Mark] = []
        self._steps = self._seq = 0

    def call(self, entered: float, done: float = 0, op: str = "all_reduce", **more) -> Story:
        """A collective; without an end it is still in flight."""
        device = more.pop("device", "cpu")
        signature = Signature(op, ((4,),), ("float32",), root=more.pop("root", None), device=device)
        if op not in ("send", "recv"):
            self._seq += 1
        fields = {
            "state": CallState.COMPLETED if done else CallState.WAITING,
            "thread": MAIN,
            "seq": self._seq if op not in ("send", "recv") else 0,
            "site": self.site,
            **more,
        }
        self.calls.append(
            Call(
                len(self.calls), self.group, signature=signature, entered_ns=at(entered), done_ns=done and at(done), **fields
            )
        )  # fmt: skip
        return self

    def mark(self, kind: str, moment: float, cpu: float = 0, data: float = 0, **more) -> Story:
        """``cpu``: of the main thread since its beginning; ``data``: in loaders since the run's."""
        self._steps += kind == "step"
        fields = {
            "thread": MAIN,
            "cpu_ns": int((more.pop("process", cpu) + 1) * MS),
            "steps": self._steps,
            "threads": 1,
        }
        self.marks.append(
            Mark(len(self.marks), kind, at(moment), thread_ns=int(cpu * MS), data_ns=int(data * MS), **fields | more)
        )
        return self


def at(moment: float) -> int:
    return BASE + int(moment * MS)


def told(*stories: Story, now: float = 0, **more) -> Account:
    ledger = Ledger()
    for rank, story in enumerate(stories):
        ledger.take(rank, story.calls, story.marks)
    return ledger.account(at(now) if now else 0, **more)


def parts(found: Account, rank: int) -> tuple[float, float, float, float]:
    """Compute, waiting, communication and data of a rank, in milliseconds."""
    one = found.ranks[rank].parts
    return tuple(round(value * 1e3, 3) for value in (one.compute, one.waiting, one.communication, one.data))


def waited_for(found: Account, rank: int) -> dict[int, float]:
    return {other: round(seconds * 1e3, 3) for other, seconds in found.ranks[rank].waited_for}


# -- holds


def test_time_in_which_a_rank_is_held_is_not_compute():
    """Before a collective and at a line; the other rank waits for it meanwhile."""
    held = Story(0, 1).mark("begin", 0).call(0, 10).mark("held", 20).mark("resumed", 60, cpu=1).call(60, 70)
    held.mark("held", 70, cpu=1).mark("resumed", 90, cpu=2).call(95, 100).mark("end", 100, cpu=15)
    free = Story(0, 1).mark("begin", 0).call(0, 10).call(20, 70).call(75, 100).mark("end", 100, cpu=15)
    found = told(held, free)
    assert round(found.ranks[0].parts.held * 1e3) == 60 and found.ranks[1].parts.held == 0
    assert parts(found, 0) == (15, 0, 25, 0) and waited_for(found, 1) == {0: 60}
    assert found.stragglers[0].because == "it was held for 60 ms"
    assert found.parts.parts[-1] == "held" and told(free, free).parts.parts[-1] == "data"
    assert TimeAccount.of(found).headline.endswith("They were held for 30 ms on average, which is not counted here.")


def test_a_rank_that_is_held_now_is_held_until_now():
    story = Story(0).mark("begin", 0).call(0, 10).mark("held", 20)
    assert round(told(story, now=100).ranks[0].parts.held * 1e3) == 80
    assert told(story, now=100).ranks[0].parts.compute == pytest.approx(0.01)


def test_several_threads_that_are_held_count_once_and_the_end_ends_all():
    held = HeldTime()
    assert held.take([Mark(n, kind, at, thread) for n, (kind, at, thread) in enumerate(
        [("held", 5, 1), ("held", 7, 2), ("resumed", 9, 1), ("resumed", 12, 2), ("resumed", 13, 2), ("held", 20, 1)])]) == [(5, 12)]  # fmt: skip
    assert held.since == 20 and held.take([Mark(9, "end", 30)]) == [(20, 30)] and not held.since


# -- one collective


def test_from_ones_own_arrival_to_the_last_is_waiting_and_the_rest_communication():
    found = told(Story(0, 1).call(0, 50), Story(0, 1).call(40, 50))
    assert parts(found, 0) == (0, 40, 10, 0)
    assert parts(found, 1) == (0, 0, 10, 0)
    assert waited_for(found, 0) == {1: 40}
    assert waited_for(found, 1) == {}


def test_the_straggler_is_named_with_the_line_where_the_others_waited():
    found = told(Story(0, 1, 2).call(0, 60), Story(0, 1, 2).call(10, 60), Story(0, 1, 2).call(60, 61))
    (one,) = found.stragglers
    assert (one.rank, round(one.waited_s, 6), one.share, one.times) == (2, 0.11, 1.0, 1)
    assert [(site, round(seconds, 6)) for site, seconds in one.sites] == [(SITE, 0.11)]
    assert found.pattern == "one"


def test_time_between_calls_is_compute():
    found = told(
        Story(0, 1).call(0, 10).call(50, 60),
        Story(0, 1).call(0, 10).call(50, 60),
    )
    assert parts(found, 0) == (40, 0, 20, 0)


def test_ranks_that_came_last_together_share_the_blame():
    found = told(
        Story(0, 1, 2).call(0, 101), Story(0, 1, 2).call(98, 101), Story(0, 1, 2).call(100, 101)
    )  # fmt: skip
    assert waited_for(found, 0) == {1: 50, 2: 50}
    assert waited_for(found, 1) == {2: 2}


def test_a_group_of_one_waits_for_nobody():
    found = told(Story(0).call(0, 10))
    assert parts(found, 0) == (0, 0, 10, 0)
    assert found.stragglers == ()


def test_groups_do_not_mix():
    found = told(
        Story(0, 1).call(0, 50), Story(0, 1).call(40, 50), Story(2, 3).call(0, 20), Story(2, 3).call(10, 20)
    )  # fmt: skip
    assert waited_for(found, 0) == {1: 40}
    assert waited_for(found, 2) == {3: 10}


def test_in_a_broadcast_only_the_root_is_waited_for():
    found = told(
        Story(0, 1, 2).call(30, 35, "broadcast", root=0),
        Story(0, 1, 2).call(0, 40, "broadcast", root=0),
        Story(0, 1, 2).call(90, 95, "broadcast", root=0),
    )
    assert waited_for(found, 0) == {}
    assert waited_for(found, 1) == {0: 30}
    assert waited_for(found, 2) == {}


def test_in_a_reduction_to_a_root_only_the_root_waits():
    found = told(
        Story(0, 1).call(0, 50, "reduce", root=0),
        Story(0, 1).call(45, 46, "reduce", root=0),
    )
    assert waited_for(found, 0) == {1: 45}
    found = told(Story(0, 1).call(45, 46, "reduce", root=0), Story(0, 1).call(0, 5, "reduce", root=0))
    assert waited_for(found, 1) == {}


def test_a_receive_waits_for_its_send():
    found = told(
        Story(0, 1).call(40, 41, "send", peer=1, turn=1),
        Story(0, 1).call(0, 42, "recv", peer=0, turn=1),
    )
    assert waited_for(found, 1) == {0: 40}
    assert waited_for(found, 0) == {}


# -- what blocks the main thread, and what does not


def test_calls_in_whose_shadow_others_were_made_do_not_count():
    """Two asynchronous calls: only the last can have held up the rank."""
    found = told(
        Story(0, 1).call(0, 90).call(80, 91),
        Story(0, 1).call(0, 90).call(80, 91),
    )
    assert parts(found, 0) == (80, 0, 11, 0)


def test_calls_of_other_threads_do_not_count():
    found = told(
        Story(0, 1).mark("begin", 0).call(10, 90, thread=OTHER).mark("step", 100, cpu=100),
        Story(0, 1).mark("begin", 0).call(80, 90, thread=OTHER).mark("step", 100, cpu=100),
    )
    assert found.ranks[0].parts.waiting == 0


def test_a_claim_is_shortened_to_the_time_without_cpu():
    """An end that was seen long after it came: the rank computed 70 of these 90 ms."""
    found = told(
        Story(0, 1).mark("begin", 0).call(0, 90).mark("step", 100, cpu=80),
        Story(0, 1).mark("begin", 0).call(0, 90).mark("step", 100, cpu=80),
    )
    assert parts(found, 0) == (80, 0, 20, 0)


def test_time_in_the_queue_for_a_core_is_no_communication():
    """Of 100 ms without CPU the main thread wanted to run for 60."""
    ledger = Ledger()
    story = Story(0).mark("begin", 0).call(0, 100).mark("step", 100)
    ledger.take(0, story.calls, story.marks, queued=(at(-50), 0))
    ledger.take(0, (), queued=(at(0), 7 * MS))
    ledger.take(0, (), queued=(at(50), 37 * MS))
    ledger.take(0, (), queued=(at(150), 97 * MS))
    assert parts(ledger.account(), 0) == (60, 0, 40, 0)


def test_ddp_waits_until_the_end_of_the_backward_pass():
    """Its calls are found to be done at the next call only; the last of a pass is waited for, in C++."""
    fast, slow = Story(0, 1), Story(0, 1)
    fast.mark("begin", 0).call(20, 29.9).call(30, 130).mark("backward", 110, cpu=30).mark("step", 120, cpu=40)
    slow.mark("begin", 0).call(90, 99.9).call(100, 130).mark("backward", 110, cpu=100).mark("step", 120, cpu=110)
    fast.call(130, 140)
    slow.call(130, 140)
    found = told(fast, slow)
    assert waited_for(found, 0) == {1: 70}
    assert found.ranks[0].parts.communication == pytest.approx(0.020)
    assert waited_for(found, 1) == {}


def test_of_a_call_that_reaches_past_a_step_only_the_waiting_is_known():
    found = told(
        Story(0, 1).mark("begin", 0).call(10, 200).mark("step", 100, cpu=20).call(210, 220),
        Story(0, 1).mark("begin", 0).call(60, 200).mark("step", 100, cpu=90).call(210, 220),
    )
    assert waited_for(found, 0) == {1: 50}
    assert found.ranks[0].parts.communication == pytest.approx(0.010)


def test_calls_on_a_gpu_hold_up_no_host_but_tell_whose_host_is_late():
    found = told(
        Story(0, 1).call(0, 90, device="cuda").call(100, 190, device="cuda"),
        Story(0, 1).call(50, 90, device="cuda").call(150, 190, device="cuda"),
    )
    assert found.host_only
    assert found.ranks[0].parts.waiting == 0
    assert found.ranks[0].utilisation is None
    assert [(one.rank, round(one.waited_s, 6)) for one in found.stragglers] == [(1, 0.1)]
    assert any("GPU" in note for note in found.notes)


# -- steps, data, utilisation


def training(slow_compute: float = 0, slow_data: float = 0, steps: int = 5) -> Story:
    """Steps of 100 ms: data 10, compute 50 with the step's end, the rest in the collective."""
    story = Story(0, 1).mark("begin", -500, cpu=0)
    cpu = 450.0
    for step in range(steps):
        began, data = 100 * step, (10 + slow_data) * (step + 1)
        busy = 50 + slow_compute
        story.call(began + 10 + slow_data + busy - 5, began + 95)
        cpu += busy
        story.mark("step", began + 100, cpu=cpu, data=data)
    return story


def test_medians_of_a_step():
    found = told(training(), training(slow_compute=30))
    step = found.ranks[0].step
    assert (round(step.compute, 6), round(step.waiting, 6), round(step.communication, 6), round(step.data, 6)) == (
        0.05, 0.03, 0.01, 0.01,
    )  # fmt: skip
    assert (found.ranks[0].steps, round(found.ranks[0].steps_per_s, 6)) == (5, 10)


def test_why_a_rank_is_late():
    assert told(training(), training(slow_compute=30)).stragglers[0].because == (
        "it computes longer: 80 ms a step, the others 50 ms"
    )
    assert told(training(), training(slow_data=30)).stragglers[0].because == (
        "it waits longer for data: 40 ms a step, the others 10 ms"
    )


def test_all_parts_make_up_the_wall_time():
    for rank in told(training(), training(slow_compute=30), now=700).ranks:
        assert rank.parts.total + rank.other_s == pytest.approx(rank.wall_s)


def test_what_comes_before_the_first_call_is_no_compute():
    found = told(training(steps=2), training(steps=2))
    assert found.ranks[0].other_s == pytest.approx(0.555)


def test_the_start_with_the_first_step_is_no_training():
    found = told(training(), training(slow_compute=30))
    assert found.ranks[0].other_s == pytest.approx(0.6)
    assert parts(found, 0) == (200, 120, 40, 40)


def test_waiting_at_the_start_is_a_note():
    stories = [Story(0, 1).mark("begin", -9_000), Story(0, 1).mark("begin", -9_000)]
    for story, entered in zip(stories, (-9_000, -2_000), strict=True):
        story.call(entered, -1_900)
        for step in range(5):
            story.call(100 * step, 100 * step + 1).mark("step", 100 * step + 50)
    found = told(*stories)
    assert found.stragglers == ()
    assert [
        note
        for note in found.notes
        if "Before the end of the first step" in note and "7.0 s" in note and "rank 1" in note
    ]


def test_utilisation_is_process_time_over_wall_time_and_threads():
    one = Story(0).mark("begin", 0).mark("step", 100, process=50).mark("step", 200, process=200, threads=2)
    assert told(one).ranks[0].utilisation == pytest.approx(0.75)


def test_more_threads_than_cores_are_noted():
    found = told(training(), training(), cores=1)
    assert any("2 threads on 1 cores" in note for note in found.notes)
    assert told(training(), training(), cores=2).notes == ()


@pytest.mark.parametrize(
    ("late", "pattern"), [((1,), "one"), ((0, 1), "turns"), ((1, 1, 1, 0), "one"), ((0, 1, 2, 3), "turns"), ((1, 2), "some")]
)  # fmt: skip
def test_always_the_same_rank_or_by_turns(late, pattern):
    size = max(2, 4 if max(late) > 1 else 2)
    stories = [Story(*range(size)) for _ in range(size)]
    for turn in range(24):
        for rank, story in enumerate(stories):
            story.call(100 * turn + (50 if late[turn % len(late)] == rank else 0), 100 * turn + 60)
    assert told(*stories).pattern == pattern


# -- a run that goes on, hangs, or was not seen whole


def test_a_call_that_waits_now_waits_for_those_that_have_not_come():
    found = told(Story(0, 1, 2).call(0), Story(0, 1, 2).call(10), Story(0, 1, 2), now=100)
    assert waited_for(found, 0) == {2: 100}
    assert waited_for(found, 1) == {2: 90}
    assert [one.rank for one in found.stragglers] == [2]


def test_asking_twice_says_the_same_and_later_more():
    ledger = Ledger()
    ledger.take(0, Story(0, 1).call(0).calls)
    ledger.take(1, ())
    first = ledger.account(at(100))
    assert ledger.account(at(100)) == first
    ledger.take(0, Story(0, 1).call(0, 160).calls)
    ledger.take(1, Story(0, 1).call(150, 160).calls)
    found = ledger.account()
    assert waited_for(found, 0) == {1: 150}
    assert parts(found, 0) == (0, 150, 10, 0)


def test_a_rank_that_died_was_waited_for_until_the_call_failed():
    found = told(Story(0, 1).call(0, 70, state=CallState.FAILED), Story(0, 1))
    assert waited_for(found, 0) == {1: 70}


@pytest.mark.parametrize("state", [CallState.REFUSED, CallState.FENCED])
def test_a_call_that_no_peer_saw_is_no_arrival(state):
    ledger = Ledger()
    ledger.take(0, Story(0, 1).call(0).calls)
    ledger.take(1, Story(0, 1).call(5, state=CallState.ENTERED).calls)
    ledger.take(1, Story(0, 1).call(5, 6, state=state).calls)
    found = ledger.account(at(50))
    assert waited_for(found, 0) == {1: 50}


def test_what_comes_in_pieces_gives_the_same_account():
    stories = [training(), training(slow_compute=20)]
    dice = random.Random(3)
    ledger = Ledger()
    done = [[0, 0], [0, 0]]
    while any(done[rank][0] < len(story.calls) for rank, story in enumerate(stories)):
        rank = dice.randrange(2)
        calls, marks = stories[rank].calls, stories[rank].marks
        upto = min(len(calls), done[rank][0] + dice.randrange(3))
        fitting = [m for m in marks[done[rank][1] :] if upto == len(calls) or m.at_ns < calls[upto].entered_ns]
        ledger.take(rank, calls[done[rank][0] : upto], fitting)
        done[rank] = [upto, done[rank][1] + len(fitting)]
    for rank, story in enumerate(stories):
        ledger.take(rank, (), story.marks[done[rank][1] :])
    assert ledger.account() == told(*stories)


def test_peers_whose_calls_were_lost_are_not_blamed():
    first, second = Story(0, 1), Story(0, 1)
    for turn in range(4):
        first.call(100 * turn, 100 * turn + 60)
        second.call(100 * turn + 50, 100 * turn + 60)
    ledger = Ledger()
    ledger.take(0, first.calls)
    ledger.take(1, second.calls[2:], lost=2)
    found = ledger.account()
    assert waited_for(found, 0) == {1: 100}
    assert parts(found, 0) == (40 * 3, 100, 140, 0)
    assert found.covered == pytest.approx(4 / 8)
    assert any("50 %" in note for note in found.notes)


def test_clocks_that_differ_are_said_and_nobody_is_blamed():
    found = told(Story(0, 1).call(0, 10), Story(0, 1).call(5_000, 5_010))
    assert found.stragglers == ()
    assert any("clocks" in note for note in found.notes)


def test_a_clock_that_jumps_back_is_survived():
    story = Story(0, 1).mark("begin", 0).mark("step", 100).mark("step", 50).mark("step", 200).call(210, 190)
    found = told(story, Story(0, 1).call(205, 215))
    assert found.ranks[0].parts.total + found.ranks[0].other_s == pytest.approx(found.ranks[0].wall_s)


def test_nothing_at_all():
    assert Ledger().account() == Account()
    found = told(Story(0, 1), Story(0, 1), now=5)
    assert [one.wall_s for one in found.ranks] == [0, 0]


def test_a_long_run_keeps_its_sums(monkeypatch):
    monkeypatch.setattr(timeline, "_KEPT", 64)
    stories = [Story(0, 1).mark("begin", 0) for _ in range(2)]
    steps = 300
    for step in range(steps):
        for rank, story in enumerate(stories):
            story.call(10 * step + (5 if rank else 1), 10 * step + 6).mark("step", 10 * step + 10, cpu=0)
    ledger = Ledger()
    for piece in range(0, steps, 50):
        for rank, story in enumerate(stories):
            ledger.take(
                rank,
                story.calls[piece : piece + 50],
                story.marks[1 + piece : 51 + piece] if piece else story.marks[:51],
            )
    found = ledger.account()
    assert found.ranks[0].parts.waiting == pytest.approx(4e-3 * (steps - 1))
    assert found.ranks[0].steps == steps
    assert found.ranks[0].step.waiting == pytest.approx(4e-3)
    assert len(ledger._timelines[0]._intervals) <= 64
    assert not ledger._collectives


def test_collectives_to_which_nobody_comes_are_let_go(monkeypatch):
    monkeypatch.setattr("ddpnb.recording.timing.account._COLLECTIVES", 100)
    ledger = Ledger()
    story = Story(0, 1)
    for turn in range(300):
        story.call(turn, turn + 0.5)
    ledger.take(0, story.calls)
    assert len(ledger._collectives) <= 100
    found = ledger.account()
    assert found.ranks[0].parts.communication == pytest.approx(0.15)
    assert found.covered == 0


@pytest.mark.parametrize("seed", range(30))
def test_odd_input_never_raises(seed):
    dice = random.Random(seed)

    def number() -> int:
        return dice.choice((0, 1, 2, 3, -1, dice.randrange(200), at(dice.randrange(200)), 1 << 63, (1 << 64) - 1))

    def call() -> Call:
        members = tuple(dice.sample(range(4), dice.randrange(4)))
        op = dice.choice(("all_reduce", "broadcast", "reduce", "gather", "send", "recv", "recv_any_source", "?"))
        signature = Signature(op, root=dice.choice((None, 0, 3, 99, -1)), device=dice.choice(("cpu", "cuda", "")))
        return Call(
            number(), Group(members), number(), signature, SITE, dice.choice(list(CallState)), dice.randrange(3),
            dice.randrange(-1, 5), dice.randrange(3), number(), 0, number(), turn=number(),
        )  # fmt: skip

    def mark() -> Mark:
        kind = dice.choice(("begin", "backward", "step", "end"))
        return Mark(number(), kind, *(number() for _ in range(7)))

    ledger = Ledger()
    for _ in range(60):
        ledger.take(
            dice.randrange(4), [call() for _ in range(dice.randrange(8))], [mark() for _ in range(dice.randrange(4))],
            number(), number(), dice.choice((None, (number(), number()))),
        )  # fmt: skip
        found = ledger.account(number(), dice.randrange(4))
        assert 0 <= found.covered <= 1
        for rank in found.ranks:
            assert min(rank.wall_s, rank.other_s, *(getattr(rank.parts, n) for n in rank.parts.__slots__)) >= 0
        found.to_json()


# -- of a Recording


def test_the_account_of_a_recording():
    ranks = {
        rank: RankRecord(
            rank, calls=tuple(Story(0, 1).call(40 * rank, 50).calls), ending=Ending("finished", at_ns=at(60))
        )
        for rank in range(2)
    }
    found = account(Recording(2, ranks, taken_ns=at(9_000)))
    assert waited_for(found, 0) == {1: 40}
    assert found.ranks[0].wall_s == pytest.approx(0.060)


def test_marks_of_a_recording_count_and_its_own_account_comes_first():
    marks = (Mark(0, "begin", at(0), 1), Mark(1, "step", at(30), 1, steps=1), Mark(2, "step", at(50), 1, steps=2))
    recording = Recording(1, {0: RankRecord(0, marks=marks, ending=Ending("finished", at_ns=at(60)))})
    assert (account(recording).ranks[0].steps, account(recording).ranks[0].steps_per_s) == (2, pytest.approx(50))
    kept = Account(notes=("kept during the run",))
    assert account(replace(recording, account=kept)) == kept


def test_a_recording_of_a_hang_blames_the_missing_rank():
    one, two, three = (Rank(rank, 3) for rank in range(3))
    found = account(record(one.waits("all_reduce", line(9)), two.computes(), three.waits("all_reduce", line(9))))
    assert [straggler.rank for straggler in found.stragglers] in ([], [1])
    assert found.covered <= 1


def _with_model(output: str = "", **options) -> Recording:
    model = Model(
        0, "DistributedDataParallel", "Net", tensors=(TensorSpec("w", (4 << 20,), "float32"),), options=options
    )
    return Recording(1, {0: RankRecord(0, models=(model,), output=output)})


@pytest.mark.parametrize(
    ("recording", "words"),
    [
        (_with_model(find_unused_parameters=True, static_graph=False), ["static_graph"]),
        (_with_model(gradient_as_bucket_view=False), ["gradient_as_bucket_view"]),
        (
            _with_model(
                "Warning: find_unused_parameters=True was specified in DDP constructor, but did not find any unused "
                "parameters in the forward pass.",
                find_unused_parameters=True,
                static_graph=False,
            ),
            ["remove it"],
        ),
        (_with_model(find_unused_parameters=False, gradient_as_bucket_view=True), []),
        (_with_model(), []),
    ],
)
def test_switches_of_ddp_are_notes_where_they_are_known(recording: Recording, words: Iterable[str]):
    notes = account(recording).notes
    assert len(notes) == len(list(words))
    assert all(word in note for word, note in zip(words, notes, strict=True))
