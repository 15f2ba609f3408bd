"""One rank against one: a culprit is named if its own past tells, and never by how the source is spelled."""

from __future__ import annotations

import pytest

from tests.conftest import VICTIMS

pytestmark = pytest.mark.world
SCRIPT = VICTIMS / "ties.py"
CASES = {
    "rate_by_environment": ("DDP410", None),
    "rate_by_rank": ("DDP410", None),
    "gradient_by_variable": ("DDP409", None),
    "rate_later": ("DDP410", 0),
    "parameters_later": ("DDP405", 0),
}


@pytest.mark.parametrize("case", CASES)
def test_of_two_ranks(traced_world, only_lines_that_ran, case):
    code, culprit = CASES[case]
    run = traced_world.run(SCRIPT, case, stream=None).wait(60)
    assert run.done and run.outcome == "divergence", run.log(0)
    (found,) = run.diagnosis.errors
    assert found.code == code, str(run.diagnosis)
    only_lines_that_ran(run, least=1)
    told = found.to_json()
    if culprit is None:
        assert (told["culprits"], told["waiting"], told["sides"]) == ([], [], [[0], [1]])
        assert "ank 0 " not in found.summary and "ank 1 " not in found.summary, "one rank is named as the culprit"
        assert {rank for rank, _ in found.where} == {0, 1}
    else:
        assert (told["culprits"], told["waiting"], told["sides"]) == ([culprit], [1 - culprit], [])
        assert found.summary.startswith(f"Rank {culprit} "), "sentence and verdict name different ranks"
