"""Collectives that were queued on a device in another order on each rank."""

from __future__ import annotations

from ddpnb.reports import files, flight_recorder, together
from tests.diagnosis.recordings import diagnose
from tests.reports.dumps import call, dump, write

CONFIG = {"0": ("default_pg", [0, 1, 2]), "1": ("tp", [0, 1])}
PAIR = ("1", "tp")


def finding(folder, held):
    return diagnose(together.recording(flight_recorder.read(files.find(write(folder, held))))).findings[0]


def queued(*, crossed: bool) -> dict:
    world, pair = call(1, 2, state="scheduled"), call(2, 1, state="scheduled", group=PAIR)
    other = [call(1, 1, state="scheduled", group=PAIR), call(2, 2, state="scheduled")]
    made = {0: other if crossed else [world, pair], 1: [world, pair], 2: [world]}
    return {rank: dump([call(0, 1), *entries], config=CONFIG) for rank, entries in made.items()}


def test_crossed(tmp_path):
    found = finding(tmp_path, queued(crossed=True))
    assert (found.code, found.culprits, found.waiting, found.certainty) == ("DDP306", (0, 1), (2,), "likely")
    assert "0 in all_reduce #1 of tp, 1 in all_reduce #2 of default_pg" in found.summary


def test_in_one_order(tmp_path):
    assert finding(tmp_path, queued(crossed=False)).code == "DDP318"
