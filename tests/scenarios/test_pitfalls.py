"""Every pitfall: the broken script gives its finding, the fixed one none."""

from __future__ import annotations

import pytest

from ddpnb import pitfalls

pytestmark = pytest.mark.world
TRACED = {"fork": False}  # forked ranks have one hash seed: the order of a set would be the same on all of them


@pytest.fixture
def run(scenario):
    def run(one, script):
        def play(world):
            if one.lacking:
                pytest.skip(one.lacking)
            return world.run(script, stream=None, fence=one.fence, patience=patience).wait(60)

        patience = min(one.patience, 3.0)
        return scenario(f"pitfalls/{one.name}{'-fixed' if script == one.fixed else ''}", play, patience=patience)

    return run


@pytest.mark.parametrize("name", pitfalls.names())
def test_broken_gives_its_finding(run, name):
    one = pitfalls.get(name)
    done = run(one, one.broken)
    found = done.diagnosis.findings
    assert found and found[0].code == one.finding, str(done)
    done.check_lines(least=1 if one.line else 0)
    # Whoever leaves early may close its connections as it goes: then those that wait for it raise.
    either = (one.outcome, "crash") if one.outcome == "hang" else (one.outcome,)
    assert done.outcome in either, str(done)
    assert (found[0].culprits, found[0].sides) == (one.culprits, one.sides), str(done)
    assert set(one.also) <= {finding.code for finding in found}
    if one.line and done.has_lines:
        lines = [done.recording.sources[site.file].splitlines()[site.line - 1] for _, site in found[0].where]
        assert any(one.line in line for line in lines), str(done)


@pytest.mark.parametrize("name", pitfalls.names())
def test_fixed_gives_none(run, name):
    one = pitfalls.get(name)
    done = run(one, one.fixed)
    assert done.outcome == "ok", str(done)
    assert [finding for finding in done.diagnosis.findings if finding.severity != "note"] == [], str(done)
