"""The numbered checkpoints of ranks, and the last ones in words."""

from __future__ import annotations

from ddpnb.recording.calls import Site
from ddpnb.recording.checkpoints import (
    checkpoints,
    last,
    last_passed,
    named,
    passed,
    with_line,
)
from ddpnb.recording.events.runs import Checkpoint
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
