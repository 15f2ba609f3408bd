"""Every pitfall: the broken script gives its finding, the fixed one none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ddpnb import pitfalls

pytestmark = pytest.mark.world


@pytest.fixture
def run(traced_world):
    def run(one, script):
        if one.lacking:
            pytest.skip(one.lacking)
        return traced_world.run(script, stream=None, fence=one.fence, patience=min(one.patience, 3.0)).wait(60)

    yield run
    left = traced_world.release(5).left  # a new process costs more than to wait for a rank that is slow
    if left:
        traced_world.restart(left)


def told(run):
    return f"{run.diagnosis}\n{run.log(0)[-1500:]}\n{run.log(1)[-1500:]}"


@pytest.mark.parametrize("name", pitfalls.names())
def test_broken_gives_its_finding(run, only_lines_that_ran, name):
    one = pitfalls.get(name)
    done = run(one, one.broken)
    found = done.diagnosis.findings
    assert found and found[0].code == one.finding, told(done)
    only_lines_that_ran(done, least=1 if one.line else 0)
    # Whoever leaves early may close its connections as it goes: then those that wait for it raise.
    either = (one.outcome, "crash") if one.outcome == "hang" else (one.outcome,)
    assert done.outcome in either, told(done)
    assert (found[0].culprits, found[0].sides) == (one.culprits, one.sides), told(done)
    assert set(one.also) <= {finding.code for finding in found}
    if one.line and sys.version_info >= (3, 12):  # which record the lines that ran
        lines = [Path(site.file).read_text().splitlines()[site.line - 1] for _, site in found[0].where]
        assert any(one.line in line for line in lines), told(done)


@pytest.mark.parametrize("name", pitfalls.names())
def test_fixed_gives_none(run, name):
    one = pitfalls.get(name)
    done = run(one, one.fixed)
    assert done.outcome == "ok", told(done)
    assert [finding for finding in done.diagnosis.findings if finding.severity != "note"] == [], told(done)
