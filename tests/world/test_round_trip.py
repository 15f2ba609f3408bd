"""A hang, its report, the finding, live ranks, and an exported script that hangs in the same way without ddpnb."""

from __future__ import annotations

import time

import pytest

import ddpnb
from ddpnb.diagnosis.before_the_end import while_waiting
from ddpnb.diagnosis.hangs.rank_state import RankState, standings
from tests.reports import real

pytestmark = [pytest.mark.world, pytest.mark.timeout(180)]
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


@pytest.mark.parametrize("report", real.REPORTS, ids=lambda report: report.name)
def test_round_trip(report, tmp_path):
    MAKE.REPORTS[report.name](tmp_path)
    recording = ddpnb.load(tmp_path / report.name)
    assert real.found(report.name, ddpnb.diagnose(recording)) == report

    script = tmp_path / "repro.py"
    ranks = ddpnb.export(recording, script, timeout=TIMEOUT_S)
    assert calls(hangs_without_ddpnb(script, ranks)) == calls(recording)

    with ddpnb.reenact(recording) as reenactment:
        assert reenactment.same, str(reenactment)
        live = reenactment.finding
        assert (live.code, live.culprits) == (report.code, report.culprits)
        reenactment.world.release()
        again = reenactment.world.run(script, stream=None, patience=2.0).wait(30).diagnosis.errors[0]
    assert (again.code, again.culprits) == (live.code, live.culprits)
    assert (again.collective.op, again.collective.seq) == (live.collective.op, live.collective.seq)
