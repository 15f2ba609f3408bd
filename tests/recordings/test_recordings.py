"""Recordings of scenarios: nothing of the machine is in them, and their text changes when what a rank did changes."""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import replace

import pytest

from ddpnb.recording import recording_file
from ddpnb.rules.diagnose import diagnose
from tests.recordings.portable import ROOT, portable
from tests.recordings.scenario import FOLDER, LIVE
from tests.recordings.text import masked, text
from tests.rules.recordings import Rank, Script, record

FILES = sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.ddpnb"))
SCRIPT = Script(
    """
    def main(rank):
        all_reduce(x)   # reduce
        if rank == 0:
            barrier()   # barrier
    """,
    file=str(ROOT / "tests" / "train.py"),
)


def hang(reduce=1):
    ranks = [
        Rank(0, 2).calls("all_reduce", SCRIPT.at("reduce")).waits("barrier", SCRIPT.at("barrier")),
        Rank(1, 2).calls("all_reduce", SCRIPT.at("reduce")).finishes(),
    ]
    for _ in range(reduce - 1):
        ranks[1].calls("all_reduce", SCRIPT.at("reduce"))
    return record(*ranks, script=SCRIPT)


def moved(recording, by_ns, pid):
    """The same run at another time, in other processes."""
    ranks = {
        rank: replace(
            one,
            pid=pid + rank,
            calls=tuple(
                replace(call, entered_ns=call.entered_ns + by_ns, issued_ns=call.issued_ns + by_ns)
                for call in one.calls
            ),
        )
        for rank, one in recording.ranks.items()
    }
    return replace(recording, ranks=ranks)


def test_nothing_of_the_machine_is_in_a_portable_recording(tmp_path):
    given = moved(hang(), 5_000_000_000, 4711)
    log = replace(
        given.ranks[1], output=f"{sys.prefix}/bin/python wrote {tmp_path}/a.txt to 127.0.0.1:45123 at 0x7f3a5c001234"
    )
    given = replace(given, ranks={**given.ranks, 1: log})
    recording = portable(given, tmp_path)
    assert recording.ranks[1].output == "/env/bin/python wrote /run/a.txt to 127.0.0.1:29500 at 0x7f"
    assert list(recording.sources) == ["/project/tests/train.py"]
    assert all(1000 < record.pid < 1010 for record in recording.ranks.values())
    assert min(call.entered_ns for record in recording.ranks.values() for call in record.calls) >= 1_000_000_000
    findings, before = diagnose(recording).findings, diagnose(given).findings
    assert [(one.code, one.culprits, one.certainty) for one in findings] == [
        (one.code, one.culprits, one.certainty) for one in before
    ]
    assert [site.line for _, site in findings[0].where] == [site.line for _, site in before[0].where]


def test_the_text_tells_what_the_ranks_did_and_not_when(tmp_path):
    first = text(portable(hang(), tmp_path))
    assert first == text(portable(moved(hang(), 7_000_000_000, 99), tmp_path))
    assert first != text(portable(hang(reduce=2), tmp_path))
    assert "call: barrier, group default_pg seq 2, WAITING, /project/tests/train.py:4 in main" in first


def test_measured_numbers_are_no_change():
    assert masked("waited 0.31 s after 12 calls, 123456 bytes") == masked("waited 4.2 s after 12 calls, 99999 bytes")
    assert masked("waited 0.31 s after 12 calls") != masked("waited 0.31 s after 13 calls")


@pytest.mark.parametrize("name", FILES)
def test_a_recording_is_as_it_was_written(name):
    """What was written is the portable form, whatever the machine, and the diagnosis beside it is complete."""
    path = FOLDER / f"{name}.ddpnb"
    content = gzip.decompress(path.read_bytes()).decode()
    assert not [place for place in ("/.venv/", "/root/", "/pytest-of-") if place in content]
    recording = recording_file.load(path)
    ranks = [record for record in recording.ranks.values() if record.pid]
    assert all(1000 < record.pid < 2000 for record in ranks)
    assert {"outcome", "findings", "world_size"} <= json.loads(path.with_suffix(".json").read_text()).keys()


def test_each_family_has_a_scenario_that_is_always_live():
    families = {name.partition("/")[0] for name in FILES if "/" in name}
    assert {name.partition("/")[0] for name in LIVE} <= families and set(LIVE) <= set(FILES)
