"""Every pitfall: the broken script gives its finding, the mended one none."""

from __future__ import annotations

from pathlib import Path

import pytest

import ddpnb
from benchmarks import executed
from ddpnb import pitfalls

pytestmark = pytest.mark.world


@pytest.fixture(scope="module")
def ran():
    """The lines that the ranks really executed."""
    with executed.recording() as lines:
        yield lines


@pytest.fixture(scope="module")
def pair(ran):
    with ddpnb.launch(2, quiet=True) as world:
        yield world


@pytest.fixture
def run(pair, ran):
    def run(one, script):
        if one.lacking:
            pytest.skip(one.lacking)
        ran.clear()
        return pair.run(script, stream=None, fence=one.fence, patience=min(one.patience, 3.0)).wait(60)

    yield run
    left = pair.release(2).left
    if left:
        pair.restart(left)


def told(run):
    return f"{run.diagnosis}\n{run.log(0)[-1500:]}\n{run.log(1)[-1500:]}"


@pytest.mark.parametrize("name", pitfalls.names())
def test_broken_gives_its_finding(run, ran, name):
    one = pitfalls.get(name)
    done = run(one, one.broken)
    assert ran.check(done.diagnosis)[1] == [], f"lines that the named rank did not execute\n{told(done)}"
    found = done.diagnosis.findings
    assert found and found[0].code == one.finding, told(done)
    # Whoever leaves early may close its connections as it goes: then those that wait for it raise.
    either = (one.outcome, "crash") if one.outcome == "hang" else (one.outcome,)
    assert done.outcome in either, told(done)
    assert (found[0].culprits, found[0].sides) == (one.culprits, one.sides), told(done)
    assert set(one.also) <= {finding.code for finding in found}
    if one.line:
        lines = [Path(site.file).read_text().splitlines()[site.line - 1] for _, site in found[0].where]
        assert any(one.line in line for line in lines), told(done)


@pytest.mark.parametrize("name", pitfalls.names())
def test_mended_gives_none(run, name):
    one = pitfalls.get(name)
    done = run(one, one.fixed)
    assert done.outcome == "ok", told(done)
    assert [finding for finding in done.diagnosis.findings if finding.severity != "note"] == [], told(done)
