"""Where calls are made, and whether ranks that make them have parted: programs, each run once as every rank."""

from __future__ import annotations

import sys
import threading
from random import Random
from types import SimpleNamespace

import pytest

from ddpnb.recorder.files.boards import PLACE, Places
from ddpnb.recording.holds import NEEDS_3_12

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason=NEEDS_3_12)

from ddpnb.recorder.holds import parted  # noqa: E402
from ddpnb.recorder.holds.parted import Partings, Place  # noqa: E402


class Calls:
    """What a program calls as one rank; ``found``: at which calls it had parted from whom."""

    def __init__(self, partings, folder, me, size):
        self._partings, self._me = partings, me
        self._files = {name: folder / name for name in ("all", "others")}
        self._size, self._groups, self._seqs = size, {}, {}
        self.found, self.made = [], 0

    def __call__(self, operation="all_reduce", group="all", back=1):
        if group not in self._groups:
            me, size = (self._me, self._size) if group == "all" else (self._me - 1, self._size - 1)
            shared = Places(str(self._files[group]), size, me)
            self._groups[group] = SimpleNamespace(places=parted._OfGroup(shared))
        seq = self._seqs[group] = self._seqs.get(group, 0) + 1
        self.made += 1
        for one in self._partings.look(operation, self._groups[group], seq, sys._getframe(back)):
            self.found.append((group, seq, one))

    def withdraw(self, group="all"):
        self._groups[group].places.withdraw(self._seqs[group])
        self._seqs[group] -= 1


@pytest.fixture
def partings():
    made = Partings(SimpleNamespace(silent=[]), None)
    made.switch(True)
    yield made
    assert not made.trouble
    made.switch(False)
    assert all(sys.monitoring.get_tool(tool) != "ddpnb hold" for tool in (3, 4))


@pytest.fixture
def run(partings, tmp_path):
    """Run a program as each rank, one after the other; returns what each has found."""

    def run(program, size=2):
        ranks = []
        for me in range(size):
            calls = Calls(partings, tmp_path, me, size)
            thread = threading.Thread(target=program, args=(me, calls))
            thread.start()
            thread.join()
            ranks.append(calls)
        return [[(group, seq) for group, seq, _ in one.found] for one in ranks]

    return run


# -- ranks that part


def skips(me, call):
    for step in range(6):
        if not (step == 3 and me == 1):
            call()


def continues(me, call):
    for step in range(6):
        if step == 3 and me == 1:
            continue
        call()


def continues_at_once(me, call):
    for step in range(6):
        if step == 0 and me == 1:
            continue
        call()


def swallows(me, call):
    for step in range(6):
        try:
            if step == 3 and me == 1:
                raise ValueError(step)
            call()
        except ValueError:
            pass


def returns_early(me, call):
    def helper(step):
        if step == 1 and me == 1:
            return
        call()

    for step in range(4):
        helper(step)
        call()


def calls_once_more(me, call):
    for step in range(6):
        call()
        if step == 1 and me == 1:
            call()


def breaks(me, call):
    for step in range(6):
        if step == 3 and me == 1:
            break
        call()
    call()


def begins_the_next_epoch(me, call):
    def epoch(length):
        for _ in range(length):
            call()

    epoch(5 - me)
    epoch(5)


def continues_without_end(me, call):
    step = 0
    while True:
        step += 1
        if step == 3 and me == 1:
            continue
        if step > 6:
            break
        call()


def skips_in_a_generator(me, call):
    def batches():
        for step in range(6):
            if step == 3 and me == 1:
                continue
            yield step

    for _ in batches():
        call()
        if me == 5:
            return
    call("barrier")


def skips_a_broadcast(me, call):
    for step in range(3):
        if step == 1 and me == 0:
            call("broadcast")
        call("broadcast")


def calls_something_else(me, call):
    call("all_reduce" if me else "all_gather")


@pytest.mark.parametrize(
    ("program", "seq"),
    [
        (skips, 4),
        (continues, 4),
        (continues_at_once, 1),
        (swallows, 4),
        (returns_early, 3),
        (calls_once_more, 3),
        (breaks, 4),
        (begins_the_next_epoch, 5),
        (continues_without_end, 3),
        (skips_in_a_generator, 6),
        (skips_a_broadcast, 2),
        (calls_something_else, 1),
    ],
)
def test_the_first_call_after_ranks_parted_is_found(run, program, seq):
    assert run(program)[1][0] == ("all", seq)


def test_a_parting_is_found_once_until_the_ranks_agree_again(run):
    def program(me, call):
        for step in range(10):
            if not (me == 1 and step in (2, 6, 7)):
                call()

    assert run(program)[1] == [("all", 3), ("all", 6)]


def test_a_rank_that_skips_again_is_no_news(run):
    def program(me, call):
        for step in range(10):
            if not (me == 1 and step in (2, 6)):
                call()

    assert run(program)[1] == [("all", 3)]


def test_ranks_that_stay_apart_are_found_once(run):
    def program(me, call):
        for step in range(6):
            call()
            if not (me == 1 and step == 1):
                call("broadcast")

    assert run(program)[1] == [("all", 4)]


def test_it_is_said_where_and_how_they_differ(partings, tmp_path, run):
    ranks = []

    def program(me, call):
        ranks.append(call)
        continues(me, call)

    run(program)
    ((_, _, one),) = ranks[1].found
    assert (one.member, one.iterations, one.exchanged) == (0, (2, 1), 0)
    line = continues.__code__.co_firstlineno
    assert one.here == one.there and (one.here.line, one.here.function) == (line + 4, "continues")


def test_calls_in_the_other_order_are_found(run):
    """Both are made by one line: which function it calls is no parting before it calls the other one."""
    ranks = []

    def program(me, call):
        ranks.append(call)

        def loss():
            call()

        def accuracy():
            call()

        for reduce in (loss, accuracy) if me else (accuracy, loss):
            reduce()

    assert run(program)[1] == [("all", 2)]
    assert ranks[1].found[0][2].exchanged == 1


def test_a_call_that_was_not_made_counts_for_nothing(run):
    """The next one has its number, and comes an iteration later."""

    def program(me, call):
        for step in range(4):
            call()
            if step == 1 and me == 1:
                call.withdraw()

    assert run(program)[1] == [("all", 2)]


@pytest.mark.parametrize(("hot", "found"), [(1024, [("all", 1)]), (8, [])])
def test_how_far_a_loop_has_come_that_ran_hot_is_not_known(run, partings, monkeypatch, hot, found):
    monkeypatch.setattr(parted, "_HOT", hot)

    def program(me, call):
        for function in list(partings._functions.values()):
            function.leading.clear()  # as in a process of its own
        for step in range(100):
            if me and step < 50:
                continue
            call()
            if step == (52 if me else 2):
                break

    assert run(program)[1] == found


# -- ranks that do not


def prints(me, call):
    for step in range(6):
        if me == 0:
            str(step)
        call()
        if me == 0 and step % 2:
            for _ in range(3):
                str(step)


def calls_in_both_branches(me, call):
    for _ in range(6):
        if me == 0:
            call("broadcast")
        else:
            call("broadcast")


def has_more_samples(me, call):
    for step in range(6):
        for sample in range(step + 7 * me):
            if sample == 3:
                continue
        call()


def yields_batches(me, call):
    def batches():
        for step in range(6):
            for _ in range(me):
                pass
            yield step

    for _ in batches():
        call()


def calls_in_a_generator(me, call):
    def batches():
        for step in range(3):
            call()
            yield step

    for _ in range(2):
        for _ in batches():
            call()


def has_roles(me, call):
    def serve():
        for _ in range(4):
            call("gather")
            call("broadcast")

    def work():
        left = 4
        while left:
            left -= 1
            call("gather")
            call("broadcast")

    serve() if me == 0 else work()


def lets_one_go_first(me, call):
    for _ in range(3):
        if me != 0:
            call("barrier")
        str(me)
        if me == 0:
            call("barrier")
        call()


def reduces_a_flag(me, call):
    def goes_on(left):
        call()
        return left > 0

    left = step = 5
    while goes_on(step) and (goes_on(step) if step != 3 else True):
        step -= 1
        if left - step > me:
            continue
        str(step)


def accumulates(me, call):
    """Until it has enough, which takes each rank another number of batches."""
    for _ in range(2):
        tokens = calls = 0
        for _ in range(100):
            tokens += 30 - 7 * me
            if tokens < 100:
                continue
            tokens = 0
            call()
            calls += 1
            if calls == 6:
                break


def accumulates_by_chance(me, call):
    chance = Random(me)
    for _ in range(40):
        for _ in range(chance.randint(2, 6)):
            str(me)
        call()
    calls = tokens = 0
    while calls < 20:
        tokens += chance.randint(20, 60)
        if tokens > 100:
            tokens = 0
            calls += 1
            call()


def calls_an_inner_loop_sometimes(me, call):
    for _ in range(4):
        for sample in range(3 + me):
            if sample == 1:
                call()


def evaluates_alone(me, call):
    def epoch(reduces):
        for _ in range(5):
            if reduces:
                call()

    for _ in range(3):
        epoch(reduces=True)
        if me == 0:
            epoch(reduces=False)


@pytest.mark.parametrize(
    "program",
    [
        prints,
        calls_in_both_branches,
        has_more_samples,
        yields_batches,
        calls_in_a_generator,
        has_roles,
        lets_one_go_first,
        reduces_a_flag,
        accumulates,
        accumulates_by_chance,
        calls_an_inner_loop_sometimes,
        evaluates_alone,
    ],
)
def test_what_is_harmless_stops_nobody(run, program):
    assert run(program) == [[], []]


def test_only_the_members_of_a_group_are_compared(run):
    def program(me, call):
        for step in range(6):
            if me == 0:
                str(step)
            else:
                for _ in range(step):
                    call(group="others")
            call()

    assert run(program, 3) == [[], [], []]


def test_what_runs_already_when_it_is_switched_on_is_compared_from_the_next_call_on(run, partings):
    def program(me, call):
        partings.switch(False)
        for step in range(8):
            if step == me:
                partings.switch(True)
            if step != 1 and not (step == 5 and me):
                call()

    assert run(program)[1] == [("all", 5)]


# -- places in the file


def test_a_place_is_read_as_it_was_written():
    place = Place(7, ((1, 20, ((4, 2), (8, 0))), (3, 44, ())))
    assert Place.unpacked(place.packed()) == place
    deep = Place(7, ((1, 20, ((4, 2), (8, 0))),) * 100)
    assert len(deep.packed()) <= PLACE
    assert Place.unpacked(deep.packed()).frames == deep.frames[: len(Place.unpacked(deep.packed()).frames)]


def test_what_is_older_than_the_row_is_not_compared(tmp_path):
    one, other = (Places(str(tmp_path / "places"), 2, me) for me in range(2))
    assert one.announce(1, b"a") == [] and other.announce(1, b"a") == []
    assert other.announce(33, b"b") == []
    assert other.announce(34, b"b") == [] and [member for member, _ in one.announce(34, b"c")] == [1]
    other.withdraw(34)
    assert one.announce(34, b"c") == []
