"""Scripts that are slow, uneven but legal, or unusual: nothing may be found."""

from __future__ import annotations

import re

import pytest
import torch.distributed as dist

from tests.conftest import VICTIMS

CASES = re.findall(r"^def (\w+)\(rank\)", (VICTIMS / "healthy.py").read_text(), re.MULTILINE)


@pytest.mark.world
@pytest.mark.parametrize("case", CASES)
def test_silent(scenario, case):
    def play(world):
        return world.run(VICTIMS / "healthy.py", case, stream=None).wait(60)

    run = scenario(f"healthy/{case}", play, world="shared_world")
    assert run.outcome == "ok", str(run.diagnosis)
    assert run.diagnosis.findings == ()
    assert run.exit_status == 0


@pytest.mark.world
@pytest.mark.skipif(not hasattr(dist.ProcessGroup, "reconfigure"), reason="this version of torch cannot do it")
def test_a_group_that_gets_other_members(scenario):
    """Nobody waits for a rank that is no longer in it."""
    case = "reconfigured"
    run = scenario(
        f"healthy/{case}",
        lambda world: world.run(VICTIMS / "places.py", case, stream=None).wait(40),
        world="shared_world",
    )
    assert (run.outcome, run.exit_status, run.diagnosis.findings) == ("ok", 0, ()), str(run.diagnosis)


@pytest.mark.world
def test_no_distributed_code(scenario):
    def play(world):
        return world.run(VICTIMS / "alone.py", "0.5", stream=None).wait(30)

    run = scenario("healthy/alone", play, world="shared_world")
    assert run.outcome == "ok"
    assert "hello" in run.log(3)
