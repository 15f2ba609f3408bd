"""Of very many entries, those around the first difference and the last ones are read."""

from __future__ import annotations

import pytest

from ddpnb.reports import files, flight_recorder, together
from ddpnb.reports.dumps import windows
from ddpnb.reports.facts import Calls
from ddpnb.rules.diagnose import diagnose
from tests.reports.dumps import call, dump, facts, write

WORLD = {"0": ("default_pg", list(range(4)))}
ELSEWHERE = [{"name": "other", "filename": "/home/me/train.py", "line": 77}]


@pytest.fixture(autouse=True)
def many(monkeypatch):
    monkeypatch.setattr(windows, "ALL", 0)


def kept(paths) -> dict[int, tuple[list[int], int]]:
    """Of each rank the numbers of its calls, and how many are left out before them."""
    every = [fact for fact in facts(paths) if isinstance(fact, Calls)]
    return {fact.speaker.rank: ([one.seq for one in fact.calls], fact.forgotten) for fact in every}


def test_the_last_calls_of_equal_ranks(tmp_path):
    held = {rank: dump([call(n, n + 1) for n in range(300)], config=WORLD) for rank in range(4)}
    assert kept(write(tmp_path, held)) == {rank: (list(range(237, 301)), 236) for rank in range(4)}


@pytest.mark.parametrize("kind", ["size", "line"])
def test_calls_around_the_first_difference(kind, tmp_path):
    def entry(rank: int, n: int) -> dict:
        differs = rank == 2 and n in (149, 180)
        sizes = [[9]] if differs and kind == "size" else None
        return call(n, n + 1, sizes=sizes, frames=ELSEWHERE if differs and kind == "line" else None)

    held = {rank: dump([entry(rank, n) for n in range(400)], config=WORLD) for rank in range(4)}
    seqs = [*range(150 - 64, 150 + 65), *range(337, 401)]
    assert kept(write(tmp_path, held)) == dict.fromkeys(range(4), (seqs, 85))


def test_rings_of_different_windows(tmp_path):
    """Rank 3 made many calls of its own, so that its ring begins later: only what both hold is compared."""
    config = {**WORLD, "1": ("own", [3])}
    held = {rank: dump([call(n, n + 1) for n in range(300)], config=config) for rank in range(3)}
    own = [call(1000 + n, n + 1, "nccl:barrier", group=("1", "own")) for n in range(100)]
    held[3] = dump(
        [*own, *(call(1100 + n, n + 1, sizes=[[9]] if n == 270 else None) for n in range(200, 300))], config=config
    )
    found = kept(write(tmp_path, held))
    assert found[0][0] == [*range(271 - 64, 301)]
    assert found[3][0] == found[0][0]


def test_what_is_in_flight_is_kept(tmp_path):
    entries = [call(n, n + 1, state="scheduled" if n == 100 else "completed") for n in range(300)]
    found = kept(write(tmp_path, {0: dump(entries, config=WORLD)}))
    assert found[0][0] == [101, *range(237, 301)]


def test_the_diagnosis_is_the_same(tmp_path, monkeypatch):
    entries = [
        [call(n, n + 1, state="completed" if n < 299 else "started") for n in range(300 - (rank == 2))]
        for rank in range(4)
    ]
    paths = write(tmp_path, {rank: dump(made, config=WORLD) for rank, made in enumerate(entries)})
    found = []
    for most in (0, 1 << 20):
        monkeypatch.setattr(windows, "ALL", most)
        found.append(diagnose(together.recording(flight_recorder.read(files.find(paths)))))
    assert [one.code for one in found[0].findings] == [one.code for one in found[1].findings] == ["DDP301"]
    assert found[0].findings[0].culprits == found[1].findings[0].culprits == (2,)
