"""What holds of the diagnosis of any recording, whatever is in it.

The recordings of scenarios are changed as ``transformed.py`` says. Other numbers of ranks, or events that have nothing to do with
the calls, change nothing but the numbers. Where less is known, or a job is twice as large, the verdict is the same or weaker: no
other rank is a proven culprit. ``KNOWN`` lists the recordings for which that does not hold yet; one that holds again fails the test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from ddpnb.recording import recording_file
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.findings import Finding
from ddpnb.recording.recording import Recording
from tests.recordings.portable import without_tracer
from tests.recordings.scenario import FOLDER, diagnosed
from tests.rules.transformed import doubled, renumbered, until, with_more_events, without

FILES = sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.ddpnb"))
PATIENCE = 3.0
MOMENTS = 12  # of each run, at which it is looked at, beside the ends of ranks
PARTS = 6  # of all recordings, each of which is a test
FEW = settings(deadline=None, max_examples=30, derandomize=True, suppress_health_check=list(HealthCheck))

Ranks = tuple[int, ...]
Verdict = tuple[str, list[tuple[str, str, str, Ranks, tuple[Ranks, ...], Ranks]]]


@cache
def recording_of(name: str) -> Recording:
    return without_tracer(recording_file.load(FOLDER / f"{name}.ddpnb"))


def verdict(recording: Recording, new: Mapping[int, int] | None = None) -> Verdict:
    """The outcome, and of each finding what does not depend on words, with other numbers for the ranks."""
    named = new or {}

    def ranks(numbers: Ranks) -> Ranks:
        return tuple(sorted(named.get(rank, rank) for rank in numbers))

    found = diagnosed(recording, PATIENCE)
    return found.outcome, sorted(
        (one.code, one.severity, one.certainty, ranks(one.culprits), tuple(sorted(map(ranks, one.sides))), ranks(one.waiting))
        for one in found.findings
    )  # fmt: skip


def unsound(before: Recording, after: Recording, old: Callable[[int], int] = int) -> list[Finding]:
    """The proven findings of a recording of which less is known that name other ranks than those of the whole one.

    Args:
        before: the whole recording.
        after: the other one.
        old: the rank of the whole recording that a rank of the other one is.
    """
    found = diagnosed(before, PATIENCE).findings
    culprits = {rank for one in found for rank in one.culprits}

    def proven_otherwise(one: Finding) -> bool:
        if one.certainty != "proven" or one.severity == "note":
            return False
        if one.culprits:
            return not {old(rank) for rank in one.culprits} <= culprits
        tied = {old(rank) for side in one.sides for rank in side}  # nobody is named: the finding must be about them
        return not any(tied <= other.concerned for other in found)

    return [one for one in diagnosed(after, PATIENCE).findings if proven_otherwise(one)]


def moments(recording: Recording) -> list[int]:
    """When calls and events of the ranks began, and when ranks ended."""
    records = recording.ranks.values()
    return sorted(
        {call.entered_ns for record in records for call in record.calls}
        | {event.began_ns for record in records for event in record.history}
        | {record.ending.at_ns for record in records if record.ending is not None}
    )


def permutations(size: int) -> list[dict[int, int]]:
    """The numbers backwards, and each the next one."""
    return [{rank: size - 1 - rank for rank in range(size)}, {rank: (rank + 1) % size for rank in range(size)}]


# -- that hold


@FEW
@given(some.data())
def test_the_old_numbers_give_the_old_recording(data):
    recording = recording_of(data.draw(some.sampled_from(FILES)))
    new = dict(enumerate(data.draw(some.permutations(range(recording.world_size)))))
    changed = renumbered(recording, new)
    assert renumbered(changed, {there: here for here, there in new.items()}) == renumbered(recording, {})
    assert changed != renumbered(recording, {}) or all(here == there for here, there in new.items())


@FEW
@given(some.data())
def test_other_numbers_for_the_ranks_give_the_same_verdict(data):
    recording = recording_of(data.draw(some.sampled_from(FILES)))
    size = recording.world_size
    new = dict(enumerate(data.draw(some.permutations(range(size)))))
    assert verdict(renumbered(recording, new)) == verdict(recording, new)


@FEW
@given(some.data())
def test_other_numbers_for_the_ranks_give_the_same_facts(data):
    recording = recording_of(data.draw(some.sampled_from(FILES)))
    new = dict(enumerate(data.draw(some.permutations(range(recording.world_size)))))
    before, after = Snapshot(recording, PATIENCE), Snapshot(renumbered(recording, new), PATIENCE)
    assert {new[rank]: one.state for rank, one in before.standings.items()} == {
        rank: one.state for rank, one in after.standings.items()
    }
    assert {new[rank] for rank in before.stuck} == after.stuck
    assert {new[rank]: {new.get(one, one) for one in wait.certain} for rank, wait in before.waits.items()} == {
        rank: set(wait.certain) for rank, wait in after.waits.items()
    }


@FEW
@given(some.data())
def test_events_that_have_nothing_to_do_with_it_change_nothing(data):
    recording = recording_of(data.draw(some.sampled_from(FILES)))
    at = data.draw(some.sampled_from(moments(recording) or [1]))
    assert verdict(with_more_events(recording, at)) == verdict(recording)


@pytest.mark.full
@pytest.mark.parametrize("name", FILES)
def test_numbers_and_unrelated_events_change_nothing_in_any_recording(name):
    recording = recording_of(name)
    for new in permutations(recording.world_size):
        assert verdict(renumbered(recording, new)) == verdict(recording, new)
    for at in moments(recording)[::50]:
        assert verdict(with_more_events(recording, at)) == verdict(recording)


# -- that hold but for what is known


def of_one_unknown_rank(recording: Recording) -> Iterator[Finding]:
    for rank in recording.ranks:
        yield from unsound(recording, without(recording, rank))


def of_two_halves(recording: Recording) -> Iterator[Finding]:
    yield from unsound(recording, doubled(recording), lambda rank: rank % recording.world_size)


def of_earlier_moments(recording: Recording) -> Iterator[Finding]:
    found = moments(recording)
    ends = {record.ending.at_ns for record in recording.ranks.values() if record.ending is not None}
    for at in sorted({*found[:: max(1, len(found) // MOMENTS)], *ends}):
        yield from unsound(recording, until(recording, at))


NOT_LAUNCHED = "a rank without a record was not launched: that is what a Recording of a World means by it"
OTHER_PLACE = "a sub-group that its members alone make is not told from one that all ranks make"

KNOWN: dict[Callable[[Recording], Iterator[Finding]], dict[str, str]] = {
    of_one_unknown_rank: dict.fromkeys(
        (
            "faults/duplicate rank training",
            "faults/missing variable training",
            "faults/variable training WORLD_SIZE ",
            "faults/world size training",
            "faults/wrong address training",
            "faults/wrong interface training",
            "faults/wrong port training",
            "form/duplicate rank",
            "form/missing variable",
            "form/variable",
            "form/world size",
            "form/wrong address",
            "form/wrong interface",
            "form/wrong port",
            "pitfalls/own-free-port",
            "victims/groups-absent",
        ),
        NOT_LAUNCHED,
    ),
    of_two_halves: {"victims/groups-other_members": OTHER_PLACE},
    of_earlier_moments: {},
}


@pytest.mark.full
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("changed", KNOWN, ids=lambda changed: changed.__name__)
def test_no_other_rank_is_proven_where_less_is_known(changed, part):
    names = FILES[part::PARTS]
    wrong = {name for name in names if any(changed(recording_of(name)))}
    known = KNOWN[changed].keys() & {*names}
    assert sorted(wrong - known) == []
    assert sorted(known - wrong) == [], "fixed: take them out of KNOWN"


@FEW
@given(some.data())
def test_no_other_rank_is_proven_in_a_sample(data):
    changed = data.draw(some.sampled_from(list(KNOWN)))
    name = data.draw(some.sampled_from([name for name in FILES if name not in KNOWN[changed]]))
    assert list(changed(recording_of(name))) == []
