"""A hang, its report, the finding, live ranks, and an exported script that hangs in the same way without ddpnb."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

import ddpnb
from ddpnb.recording.facts.before_the_end import while_waiting
from ddpnb.recording.facts.standings import RankState, standings
from tests.reports import real

pytestmark = pytest.mark.world
by_report = pytest.mark.parametrize("report", real.REPORTS, ids=lambda report: report.name)
TIMEOUT_S = 5
MAKE = real.generator()


def calls(recording):
    """The operation that each rank waits in, as far as it is known."""
    ranks = standings(while_waiting(recording)).items()
    return {
        rank: one.call.op if one.call is not None else one.function
        for rank, one in ranks
        if one.state is RankState.WAITING
    }


def hangs_without_ddpnb(script, ranks):
    """Run a script by torchrun until it ends by its time-out; what its output says."""
    began = time.monotonic()
    with MAKE.torchrun(script.parent, ranks, script.name) as job:
        assert job.wait(90) != 0
    assert time.monotonic() - began > TIMEOUT_S
    log = script.parent / "job.log"
    assert "Timed out waiting" in log.read_text()
    return ddpnb.load(log)


def program(script):
    """A script without the comments about itself; its time-out is asked for."""
    text = script.read_text()
    return re.sub(r"timedelta\(seconds=\d+\)", "timedelta()", text[text.index("import os") :])


@pytest.mark.parametrize(
    "report",
    [
        pytest.param(report, id=report.name, marks=[pytest.mark.full] if report.name != "flight-recorder" else [])
        for report in real.REPORTS
    ],
)
def test_the_report_of_an_earlier_run_on_live_ranks(report, tmp_path, world):
    recording = ddpnb.load(real.FOLDER / report.name)
    script = tmp_path / "repro.py"
    ranks = ddpnb.export(recording, script, timeout=TIMEOUT_S)
    with ddpnb.reenact(recording, world if ranks == world.size else None) as reenactment:
        assert reenactment.same, str(reenactment)
        assert (reenactment.finding.code, reenactment.finding.culprits) == (report.code, report.culprits)
        assert program(Path(reenactment.script)) == program(script)


@pytest.mark.full
@by_report
def test_round_trip(report, tmp_path, world):
    MAKE.REPORTS[report.name](tmp_path)
    recording = ddpnb.load(tmp_path / report.name)
    assert real.found(report.name, ddpnb.diagnose(recording)) == report

    script = tmp_path / "repro.py"
    ranks = ddpnb.export(recording, script, timeout=TIMEOUT_S)
    assert calls(hangs_without_ddpnb(script, ranks)) == calls(recording)

    with ddpnb.reenact(recording, world if ranks == world.size else None) as reenactment:
        assert reenactment.same, str(reenactment)
        assert (reenactment.finding.code, reenactment.finding.culprits) == (report.code, report.culprits)
        assert program(Path(reenactment.script)) == program(script)
