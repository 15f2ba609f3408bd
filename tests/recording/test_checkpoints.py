"""The numbered checkpoints of ranks: the last ones, and the first that not all ranks passed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddpnb.recording.calls import Site
from ddpnb.recording.checkpoints import (
    checkpoints,
    first_not_passed_by_all,
    last,
    last_passed,
    named,
    passed,
    with_line,
)
from ddpnb.recording.events.runs import Checkpoint
from ddpnb.recording.recording import Recording
from ddpnb.recording.recording_file import load
from tests.rules.recordings import FILE, Rank, line, record


def rank(number, *names, world=2):
    """A rank that passed checkpoints; each name is on a line of its own, and may come again."""
    found = Rank(number, world)
    lines, visits = {}, {}
    for count, name in enumerate(names, 1):
        place = lines.setdefault(name, 10 + ord(name[0]))
        visits[place] = visits.get(place, 0) + 1
        found.passes(count, name, line(place), visit=visits[place])
    return found


def first(*ranks):
    """The name of the first checkpoint that not all passed, who passed it, and who did not."""
    found = first_not_passed_by_all(record(*ranks))
    return found and (found.checkpoint.name, found.checkpoint.number, found.passed, found.missing)


def test_in_the_order_of_their_numbers_with_name_place_and_time():
    by_rank = checkpoints(record(rank(0, "a", "b"), rank(1, "a")))
    assert [[(one.number, one.name) for one in those] for those in by_rank.values()] == [
        [(1, "a"), (2, "b")],
        [(1, "a")],
    ]
    one = by_rank[0][1]
    assert (one.site, one.visit) == (line(10 + ord("b")), 1) and one.began_ns > by_rank[0][0].began_ns


def test_a_rank_without_any_has_an_empty_list():
    assert checkpoints(record(rank(0), rank(1, "a")))[0] == ()
    assert last(rank(0).record) is None


def test_threads_may_record_them_in_another_order():
    found = Rank(0, 1).passes(2, "b", line(2)).passes(1, "a", line(1)).record
    assert [one.name for one in passed(found)] == ["a", "b"] and last(found).name == "b"


def test_the_first_that_one_rank_has_not_passed():
    assert first(rank(0, "a", "b", "c"), rank(1, "a")) == ("b", 2, (0,), (1,))
    assert first(rank(0, "a"), rank(1, "a", "b"), rank(2, "a", "b", "c"), rank(3)) == ("a", 1, (0, 1, 2), (3,))


@pytest.mark.parametrize("ranks", [(), (rank(0), rank(1)), (rank(0, "a"),), (rank(0, "a", "b"), rank(1, "a", "b"))])
def test_none_where_all_passed_the_same(ranks):
    assert first(*ranks) is None


def test_a_loop_is_counted_by_visits():
    assert first(rank(0, "a", "s", "s", "s"), rank(1, "a", "s")) == ("s", 3, (0,), (1,))


def test_one_that_a_rank_left_out_does_not_count():
    """``if rank == 0: checkpoint("saved")``: the numbers differ from there on."""
    assert first(rank(0, "a", "only rank 0", "b", "c"), rank(1, "a", "b")) == ("c", 4, (0,), (1,))
    assert first(rank(0, "a", "only rank 0", "b"), rank(1, "a", "b")) is None
    assert first(rank(0, "a", "only rank 0", "b"), rank(1, "a", "b", "c")) == ("c", 3, (1,), (0,))


def test_names_may_differ_between_ranks():
    ranks = [Rank(n, 2).passes(1, f"ready on rank {n}", line(5)) for n in range(2)]
    assert first(*ranks) is None


def test_only_the_first_and_the_last_of_very_many_are_known():
    def loop(number, steps):
        found = Rank(number, 2)
        for step in [*range(1, 65), *range(max(65, steps - 191), steps + 1)]:
            found.passes(step, f"step {step}", line(9), visit=step)
        return found

    found = first_not_passed_by_all(record(loop(0, 1000), loop(1, 990)))
    assert (found.checkpoint.name, found.missing) == ("step 991", (1,))
    apart = first_not_passed_by_all(record(loop(0, 1000), loop(1, 300)))
    assert apart.missing == (1,) and apart.checkpoint.number == 809  # the first that is known


def test_a_thousand_ranks():
    ranks = [rank(number, *"abcd"[: 3 + number % 2], world=1024) for number in range(1024)]
    found = first_not_passed_by_all(record(*ranks))
    assert found.checkpoint.name == "d" and found.missing == tuple(range(0, 1024, 2))


# -- in words


def test_words():
    one = Checkpoint(name="Trainer ready", number=3, site=Site(FILE, 41, "main"))
    assert with_line(one) == "checkpoint 3 (Trainer ready), line 41"
    assert named(Checkpoint(number=2)) == with_line(Checkpoint(number=2)) == "checkpoint 2"
    assert "\x1b" not in named(Checkpoint(number=2, name="\x1b[31m"))


def test_which_rank_stopped_after_which():
    ranks = {
        number: rank(number, *("ab" if number else "a"), world=4).record if number < 3 else Rank(3).record
        for number in range(4)
    }
    assert last_passed(ranks) == (
        f"Rank 3 passed no checkpoint; rank 0 passed checkpoint 1 (a) last, at {FILE}:{10 + ord('a')}; "
        f"ranks 1 and 2 passed checkpoint 2 (b) last, at {FILE}:{10 + ord('b')}."
    )
    assert last_passed({3: ranks[3]}) == ""


def test_ranks_that_all_differ_are_a_bounded_sentence():
    ranks = {number: Rank(number, 100).passes(number + 1, "s", line(9)).record for number in range(100)}
    text = last_passed(ranks)
    assert text.count("passed checkpoint") == 8 and text.endswith("; the other ranks passed others last.")


# -- from a file


def test_a_recording_in_a_file_keeps_them(tmp_path):
    recording = record(rank(0, "a", "b", "b"), rank(1, "a"))
    recording.save(tmp_path / "run.ddpnb")
    assert checkpoints(load(tmp_path / "run.ddpnb")) == checkpoints(recording)


def test_facts_of_a_rank_are_not_trusted():
    odd = (
        Rank(0, 2)
        .phase("checkpoint", "done", number="nine", name=["x"], visit=-1)
        .phase("checkpoint", "done", number=-4)
    )
    assert checkpoints(record(odd, rank(1, "a")))[0] == ()
    assert first(odd, rank(1, "a")) == ("a", 1, (1,), (0,))


def test_recordings_without_events():
    assert first_not_passed_by_all(Recording(2, {})) is None
    stripped = {n: replace(rank(n, "a").record, history=()) for n in range(2)}
    assert first_not_passed_by_all(Recording(2, stripped)) is None
