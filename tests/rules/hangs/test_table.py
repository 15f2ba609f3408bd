"""Each row of the table of hangs has a recording, and the finding has one of the row's codes."""

from __future__ import annotations

import pytest

import ddpnb
from ddpnb.recording.facts.departures import Left
from ddpnb.recording.facts.snapshot import Snapshot
from ddpnb.recording.facts.stops import Awaited, Waits
from ddpnb.reports import files, flight_recorder, together
from ddpnb.rules.hangs.table import TABLE
from tests.recordings.scenario import FOLDER
from tests.reports.dumps import write
from tests.rules.hangs import test_stacks_alone as stacks
from tests.rules.hangs.test_queued_calls import queued
from tests.rules.hangs.test_startup import at_address, claiming, still
from tests.rules.hangs.test_stores import standing
from tests.rules.recordings import Rank, diagnose, line, record

IN_CALL = stacks.rank(0, stacks.frame("reduce"), "all_reduce")


def of_files(name):
    return lambda _: ddpnb.load(FOLDER / f"{name}.ddpnb")


def by_hand(*ranks, **more):
    return lambda _: record(*ranks, **more)


def by_stacks(*ranks):
    return lambda _: stacks.recording(*ranks)


def in_report(*ranks):
    """Ranks of files that do not say what rank 2 did."""
    return by_hand(*ranks, world_size=3)


def refused():
    """A rank that an earlier run has sent to the address of one that is not there yet."""
    rank = Rank(0, 2).absent().phase("init_process_group", "failed", line(2), world_size=2, address="a:1")
    return rank.raises("RuntimeError", "Gloo connectFullMesh failed with ... Connection refused", line(2))


ROWS = {
    (Waits.CALLS, Awaited.DIFFERS, Left.SEPARATE): of_files("victims/mismatch-dtype"),
    (Waits.CALLS, Awaited.DIFFERS, Left.LOOP): of_files("data/uneven"),
    (Waits.CALLS, Awaited.DIFFERS, Left.SKIPPED): of_files("faults/skip collectives all_reduce 4"),
    (Waits.CALLS, Awaited.DIFFERS, Left.EXTRA): of_files("faults/extra call collectives all_reduce 4"),
    (Waits.CALLS, Awaited.DIFFERS, Left.EITHER): of_files("faults/swap collectives all_reduce"),
    (Waits.COLLECTIVE, Awaited.ENDED, Left.LOOP): of_files("faults/shorter shard training"),
    (Waits.COLLECTIVE, Awaited.ENDED, Left.SKIPPED): by_hand(
        Rank(0, 2).waits("barrier", line(5)), Rank(1, 2).finishes()
    ),
    (Waits.COLLECTIVE, Awaited.EACH_OTHER, Left.SKIPPED): of_files("victims/groups-skipped_in_group"),
    (Waits.COLLECTIVE, Awaited.EACH_OTHER, Left.SEPARATE): of_files("pitfalls/groups-in-other-order"),
    (Waits.COLLECTIVE, Awaited.SILENT, None): in_report(*(Rank(n, 3).waits("all_reduce", line(5)) for n in range(2))),
    (Waits.QUEUE, Awaited.EACH_OTHER, None): lambda folder: together.recording(
        flight_recorder.read(files.find(write(folder, queued(crossed=True))))
    ),
    (Waits.POINT_TO_POINT, Awaited.ENDED, None): of_files("victims/p2p-never_sent"),
    (Waits.POINT_TO_POINT, Awaited.EACH_OTHER, None): of_files("pitfalls/ring-receives-first"),
    (Waits.POINT_TO_POINT, Awaited.SILENT, None): None,  # tests/reports: dumps without the send
    (Waits.START, Awaited.WRONG_CLAIM, None): by_hand(*claiming(0, 0)),
    (Waits.START, Awaited.ABSENT, None): by_hand(*claiming(0, 1, world_size=3)),
    (Waits.START, Awaited.ENDED, None): by_hand(Rank(0, 2).starts(line(5), world_size=2), Rank(1, 2).finishes()),
    (Waits.START, Awaited.ELSEWHERE, None): by_hand(*at_address("10.1.2.3:29500", "10.1.2.4:29500")),
    (Waits.START, Awaited.EACH_OTHER, None): by_hand(*(still(one, 60.0) for one in at_address("a:1", "a:1"))),
    (Waits.START, Awaited.STALE, None): by_hand(refused(), Rank(1, 2).absent().computes(line(3))),
    (Waits.STORE, Awaited.EACH_OTHER, None): by_hand(*(standing(n, 4000 + n, master=n == 0) for n in range(3))),
    (Waits.GROUP, Awaited.EACH_OTHER, None): of_files("pitfalls/group-made-by-members-only"),
    (Waits.ANYTHING, Awaited.DIED, None): by_hand(Rank(0, 2).waits("barrier", line(5)), Rank(1, 2).dies(-9)),
    (Waits.ANYTHING, Awaited.RAISED, None): by_hand(
        Rank(0, 2).raises("ValueError", "bad", line(5)), Rank(1, 2).finishes()
    ),
    (Waits.ANYTHING, Awaited.BLOCKED, None): by_hand(
        Rank(0, 2).waits("barrier", line(5)), Rank(1, 2).idles(60.0, line(7))
    ),
    (Waits.ANYTHING, Awaited.UNRESPONSIVE, None): by_hand(Rank(0, 2).waits("barrier", line(5)), Rank(1, 2).stops(60.0)),
    (Waits.NOTHING, Awaited.BLOCKED, None): by_hand(*(Rank(n, 2).idles(60.0, line(7)) for n in range(2))),
    (Waits.NOTHING, Awaited.UNRESPONSIVE, None): by_hand(*(Rank(n, 2).joined(line(2)).stops(60.0) for n in range(2))),
    (Waits.STACK, Awaited.ENDED, None): by_stacks(IN_CALL, stacks.ended(1)),
    (Waits.STACK, Awaited.PAST, None): by_stacks(
        stacks.rank(0, stacks.frame("barrier"), "barrier"), stacks.rank(1, stacks.frame("sleep"))
    ),
    (Waits.STACK, Awaited.ABSENT, None): by_stacks(
        stacks.rank(0, stacks.frame("setup"), "init_process_group"), stacks.elsewhere(1)
    ),
    (Waits.STACK, Awaited.BLOCKED, None): by_stacks(IN_CALL, stacks.rank(1, stacks.frame("setup"))),
    (Waits.STACK, Awaited.UNRESPONSIVE, None): by_stacks(IN_CALL, stacks.rank(1, activity="stopped")),
    (Waits.STACK, Awaited.MOVING, None): by_stacks(
        IN_CALL, stacks.rank(1, stacks.frame("setup"), activity="computing")
    ),
    (Waits.STACK, Awaited.DIFFERS, None): by_stacks(IN_CALL, stacks.rank(1, stacks.frame("barrier"), "barrier")),
    (Waits.STACK, Awaited.EACH_OTHER, None): by_stacks(IN_CALL, stacks.rank(1, stacks.frame("reduce"), "all_reduce")),
    (Waits.ANYTHING, Awaited.SILENT, None): None,  # no recording has led there
    (Waits.STACK, Awaited.SILENT, None): None,  # tests/reports: stacks of all ranks but one
}


def test_every_row_has_a_recording():
    assert ROWS.keys() == TABLE.keys()


@pytest.mark.parametrize("cell", [cell for cell, made in ROWS.items() if made], ids=str)
def test_a_row(cell, tmp_path):
    taken = ROWS[cell](tmp_path)
    assert cell in [stop.cell for stop in Snapshot.of(taken).stops]
    assert {finding.code for finding in diagnose(taken).findings} & set(TABLE[cell])
