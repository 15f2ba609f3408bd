"""One rank against one: a culprit is named if its own past tells, and never by how the source is spelled."""

from __future__ import annotations

import pytest

from ddpnb.recording import protocol
from tests.conftest import VICTIMS

pytestmark = pytest.mark.world
SCRIPT = VICTIMS / "ties.py"


@pytest.fixture(scope="module", autouse=True)
def every_step():
    """On a slow machine ranks may look at different steps, and then less is known."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(protocol.LOOKS, "0..100")
        yield


# The finding, and how certain it is who is at fault; None: both sides are named.
CASES = {
    "rate_by_environment": ("DDP410", "proven"),
    "rate_by_rank": ("DDP410", "proven"),
    "rate_by_variable": ("DDP410", "proven"),
    "rate_later": ("DDP410", "proven"),
    "rate_of_its_own": ("DDP410", None),
    "scheduler_left_out": ("DDP410", "proven"),
    "scheduler_alone": ("DDP410", "likely"),
    "plateau": ("DDP410", None),
    "gradient_by_variable": ("DDP409", "proven"),
    "gradient_after_clipping": ("DDP409", "proven"),
    "clips_alone": ("DDP409", "proven"),
    "parameters_later": ("DDP405", "likely"),  # perhaps the other rank should have changed its own too
}
# Where the ranks made the difference, if it is known.
PLACES = {"rate_of_its_own": "# construction", "plateau": "# plateau"}


@pytest.mark.parametrize("wrong", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_of_two_ranks(scenario, case, wrong):
    code, certainty = CASES[case]
    name = f"ties/{case}-{wrong}"
    run = scenario(name, lambda world: world.run(SCRIPT, case, str(wrong), stream=None).wait(60), patience=10.0)
    assert run.outcome == "divergence", str(run)
    (found,) = run.diagnosis.errors
    assert found.code == code, str(run.diagnosis)
    run.check_lines(least=1)
    told = found.to_json()
    if certainty is None:
        assert (told["culprits"], told["waiting"], told["sides"]) == ([], [], [[0], [1]])
        assert "ank 0 " not in found.summary and "ank 1 " not in found.summary, "one rank is named as the culprit"
        assert {rank for rank, _ in found.where} == {0, 1}
    else:
        assert (told["culprits"], told["waiting"], told["sides"]) == ([wrong], [1 - wrong], [])
        assert found.summary.startswith(f"Rank {wrong} "), "sentence and verdict name different ranks"
        assert found.certainty == certainty
    if case in PLACES:
        marked = {n for n, line in enumerate(SCRIPT.read_text().splitlines(), 1) if line.endswith(PLACES[case])}
        assert {site.line for _, site in found.where} >= marked
