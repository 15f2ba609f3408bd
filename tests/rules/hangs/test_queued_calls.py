"""Collectives in the queue of a device, behind the program."""

from __future__ import annotations

import ddpnb
from ddpnb.recording.calls import CallState
from ddpnb.reports import files, flight_recorder, together
from tests.reports.dumps import call, dump, write
from tests.rules.recordings import diagnose, group, line, recorded

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
    assert [text.split(" (")[0] for text in found.evidence[:2]] == [
        "Rank 0 is in all_reduce #1 of tp with ranks 0 and 1",
        "Ranks 1 and 2 are in all_reduce #2 of default_pg",
    ]


def test_in_one_order(tmp_path):
    assert finding(tmp_path, queued(crossed=False)).code == "DDP318"


def far_ahead(rank):
    """Rank 1 has ended after its first call; the host of rank 0 waits where it needs the result of four."""
    made = rank.joins().calls("all_reduce", line(5), device="cuda")
    if rank.rank == 1:
        return made.finishes()
    for _ in range(3):
        made = made.issues("all_reduce", line(5), device="cuda")
    return made.idles(5.0, line(9), still_s=5.0)


def test_the_call_that_the_device_waits_in_is_named_and_where_its_host_is():
    (found,) = diagnose(recorded(far_ahead, 2)).errors
    assert (found.culprits, found.waiting, found.certainty) == ((1,), (0,), "proven")
    assert found.collective.seq == 2 and (0, line(5)) in found.where
    assert f"The host of rank 0 is further: it waits at {line(9)} in main, after 2 more calls." in found.evidence


def crossed_while_it_runs(rank):
    world, own = group(0, 1, label="default_pg"), group(0, 1, ordinal=1)
    made = rank.joins()
    for number, members in enumerate((world, own) if rank.rank == 0 else (own, world)):
        made = made.calls("all_reduce", line(5 + number), state=CallState.ISSUED, device="cuda", group=members)
    return made.idles(40.0, line(9), still_s=40.0)


def test_crossed_in_a_running_job():
    (finding,) = diagnose(recorded(crossed_while_it_runs, 2)).errors
    assert (finding.code, finding.culprits, finding.certainty) == ("DDP306", (0, 1), "likely")
    unproven = ddpnb.diagnose(recorded(crossed_while_it_runs, 2))
    assert not unproven.errors and [one.code for one in unproven.findings] == ["DDP306"]
    assert not ddpnb.diagnose(recorded(crossed_while_it_runs, 2), patience=60.0).findings
