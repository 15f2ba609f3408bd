"""The work of a diagnosis grows with the ranks, not with their square; what it says of thousands is short and right."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from ddpnb.recording import calls
from ddpnb.recording.calls import Group
from ddpnb.recording.findings import Diagnosis
from ddpnb.recording.recording import Recording
from ddpnb.render import board as boards
from ddpnb.render import card
from ddpnb.render.views import board, lanes
from tests.rules.recordings import Rank, diagnose, line
from tests.work import Counted, work

MANY, VERY_MANY, CULPRIT = 1024, 16_384, 17
OTHERS = f"ranks 0-{CULPRIT - 1} and {CULPRIT + 1}-{{last}}"


def missing(rank, world, group):
    one = Rank(rank, world).calls("broadcast", line(3), group=group).calls("all_reduce", line(5), group=group)
    return one.finishes() if rank == CULPRIT else one.waits("all_gather", line(6), group=group)


def computes_elsewhere(rank, world, group):
    one = Rank(rank, world).calls("all_reduce", line(5), group=group)
    return one.idles(60.0, line(9)) if rank == CULPRIT else one.waits("all_reduce", line(5), group=group)


def half_missing(rank, world, group):
    one = Rank(rank, world).calls("all_reduce", line(5), group=group)
    return one.finishes() if rank % 2 else one.waits("all_reduce", line(5), group=group)


def mismatch(rank, world, group):
    one = Rank(rank, world).calls("all_reduce", line(5), group=group)
    return one.waits("all_reduce", line(7), group=group, shape=(5 if rank == CULPRIT else 4,))


def raises(rank, world, group):
    one = Rank(rank, world).calls("all_reduce", line(5), group=group)
    if rank == CULPRIT:
        return one.raises("ValueError", "bad record", line(4))
    return one.waits("all_reduce", line(5), group=group)


def at_start(rank, world, group):
    return Rank(rank, world).finishes() if rank == CULPRIT else Rank(rank, world).starts(line(2), address="a:1")


def rows(rank, world, group):
    """Groups of eight, one rank missing in each."""
    first = rank // 8 * 8
    own = Group(Counted(range(first, first + 8)))
    one = Rank(rank, world).calls("all_reduce", line(5), group=own)
    return one.finishes() if rank % 8 == 3 else one.waits("all_reduce", line(5), group=own)


def healthy(rank, world, group):
    return Rank(rank, world).calls("all_reduce", line(5), group=group).calls("barrier", line(6), group=group).computes()


CASES = {
    "missing": (missing, "DDP301"),
    "blocked elsewhere": (computes_elsewhere, "DDP313"),
    "half missing": (half_missing, "DDP301"),
    "mismatch": (mismatch, "DDP303"),
    "raises": (raises, "DDP312"),
    "start-up": (at_start, ""),
    "rows": (rows, "DDP301"),
    "healthy": (healthy, None),
}


def taken(made, world):
    group = Group(Counted(range(world)), label="default_pg")
    ranks = {rank: made(rank, world, group).record for rank in range(world)}
    return Recording(world, ranks, host={"cores": world}, taken_ns=10_000_000_000)


def everything(recording):
    """What ``ddpnb diagnose``, its JSON and the dashboard work out."""
    found = diagnose(recording)
    card.text(found, width=100), card.html(found), json.dumps(found.to_json())
    boards.board(board.tiles(recording, found.findings))
    return found


@pytest.fixture(scope="module", autouse=True)
def rules_are_read():
    """Rules and error texts are read once per process."""
    for made, _ in CASES.values():
        everything(taken(made, 8))


@pytest.fixture(autouse=True)
def members_are_counted():
    """Equal groups share the members of the first."""
    calls._identity.cache_clear()


@pytest.mark.parametrize("case", CASES)
def test_the_work_grows_with_the_ranks(case):
    made, _ = CASES[case]
    few, many = 128, 512
    counts = [work(lambda taken=taken(made, world): everything(taken)) for world in (few, many)]
    # Linear would be 4, quadratic 16; a part of the work is the same for any number of ranks.
    assert counts[1] < 5 * counts[0], counts


def test_the_work_grows_with_the_calls():
    def record(count):
        group = Group(tuple(range(8)), label="default_pg")
        ranks = {}
        for rank in range(8):
            one = Rank(rank, 8)
            for number in range(count):
                one.calls("all_reduce", line(5), group=group, seq=number + 1)
            ranks[rank] = (
                one.finishes() if rank == 3 else one.waits("all_reduce", line(6), group=group, seq=count + 1)
            ).record
        return Recording(8, ranks)

    counts = [work(lambda taken=record(count): everything(taken)) for count in (100, 400)]
    assert counts[1] < 5 * counts[0], counts


@pytest.mark.parametrize("case", ["missing", "rows"])
def test_what_is_counted_finds_a_quadratic_part(case):
    """The bound above would not hold if each rank looked at all members once."""
    made, _ = CASES[case]

    def wasteful(recording):
        everything(recording)
        for record in recording.ranks.values():
            for call in record.calls[:1]:
                set(call.group.ranks)

    counts = [work(lambda taken=taken(made, world): wasteful(taken)) for world in (128, 512)]
    if case not in ("start-up", "rows"):  # without a call, or in small groups
        assert counts[1] > 5 * counts[0], counts


# -- what is said of very many


@dataclass(repr=False)  # pytest would show all of it
class Shown:
    case: str
    code: str | None
    recording: Recording
    found: Diagnosis

    @property
    def world(self) -> int:
        return self.recording.world_size


SHOWN = [(case, MANY) for case in ("missing", "mismatch", "half missing", "healthy")]


@pytest.fixture(
    scope="module",
    params=[*SHOWN, *(pytest.param((case, VERY_MANY), marks=pytest.mark.full) for case, _ in SHOWN)],
    ids=lambda given: f"{given[0]} of {given[1]}",
)
def shown(request):
    case, world = request.param
    made, code = CASES[case]
    group = Group(tuple(range(world)), label="default_pg")
    recording = Recording(world, {rank: made(rank, world, group).record for rank in range(world)}, taken_ns=10**10)
    return Shown(case, code, recording, diagnose(recording))


def test_the_culprit_of_very_many_ranks(shown):
    case, code, found, world = shown.case, shown.code, shown.found, shown.world
    if case == "healthy":
        assert not found.findings
        return
    (first,) = found.errors
    assert first.code == code
    assert first.culprits == (tuple(range(1, world, 2)) if case == "half missing" else (CULPRIT,))
    assert len(first.waiting) == world - len(first.culprits)
    if case != "half missing":
        assert OTHERS.format(last=world - 1) in first.summary


def test_text_and_html_of_very_many_ranks_are_short(shown):
    recording, found = shown.recording, shown.found
    text, html = card.text(found, width=100), card.html(found)
    assert text.count("\n") < 40 and len(text) < 3000
    assert len(html) < 6000
    tiles = board.tiles(recording, found.findings)
    assert len(tiles) <= 4 and sum(len(one.ranks) for one in tiles) == shown.world
    assert len(boards.board(tiles)) < (min(60_000, 6 * shown.world) if shown.case == "half missing" else 4000)
    assert len(boards.text(tiles)) < 4000


def test_the_json_of_very_many_ranks_lists_them_all(shown):
    found = shown.found
    held = json.loads(json.dumps(found.to_json()))
    assert len(held["exit_codes"]) == shown.world
    for one, finding in zip(held["findings"], found.findings, strict=True):
        assert one["waiting"] == list(finding.waiting) and len(one["where"]) == len(finding.where)


def test_the_time_line_of_very_many_ranks_has_few_lanes(shown):
    if shown.case != "missing":
        pytest.skip("one is enough: it takes seconds")
    drawn = lanes.lanes(shown.recording, shown.found)
    assert 5 <= len(drawn.lanes) < lanes.MOST and drawn.of == shown.world
    assert CULPRIT in {lane.rank for lane in drawn.lanes}
