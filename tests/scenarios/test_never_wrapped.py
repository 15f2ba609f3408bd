"""Ranks that train without a wrapper: a warning where nothing was synchronised, silence where it was not needed."""

from __future__ import annotations

import pytest

from tests.conftest import VICTIMS, marked_lines

SCRIPT = VICTIMS / "never_wrapped.py"


def played(scenario, case):
    def play(world):
        return world.run(SCRIPT, case, stream=None).wait(60)

    return scenario(f"never_wrapped/{case}", play, world="shared_world")


@pytest.mark.world
def test_a_model_that_nobody_wrapped(scenario):
    run = played(scenario, "forgotten")
    assert (run.outcome, run.exit_status) == ("ok", 0)
    (finding,) = run.diagnosis.findings
    assert (finding.code, finding.severity, finding.culprits) == ("DDP417", "warning", (0, 1, 2, 3))
    assert {site.line for _, site in finding.where} == set(marked_lines(SCRIPT, "culprit", "forgotten"))
    assert "6 optimizer steps of SGD, " in finding.evidence[0]


@pytest.mark.world
def test_parameters_beside_a_wrapped_model(scenario):
    run = played(scenario, "beside")
    (finding,) = run.diagnosis.findings
    assert (finding.code, finding.severity, finding.culprits) == ("DDP417", "warning", (0, 1, 2, 3))
    assert finding.tensors == ("temperature",)
    assert {site.line for _, site in finding.where} == set(marked_lines(SCRIPT, "culprit", "beside"))


@pytest.mark.world
def test_gradients_that_each_rank_clips_by_its_own_norm(scenario):
    run = played(scenario, "clips_its_own")
    (finding,) = run.diagnosis.findings
    assert (finding.code, finding.severity, finding.certainty, finding.culprits) == (
        "DDP409",
        "error",
        "likely",
        (0, 1, 2, 3),
    )
    assert {site.line for _, site in finding.where} == set(marked_lines(SCRIPT, "culprit", "clips_its_own"))


@pytest.mark.world
@pytest.mark.parametrize("case", ["beside_averaged", "misled", "ignored_buffers"])
def test_what_is_kept_equal_or_is_meant_to_differ_beside_a_wrapped_model(scenario, case):
    run = played(scenario, case)
    assert (run.outcome, [finding.code for finding in run.diagnosis.findings]) == ("ok", []), str(run.diagnosis)


@pytest.mark.world
@pytest.mark.parametrize("case", ["averaged", "clips_the_mean", "weighs", "search", "actors"])
def test_what_is_synchronised_by_hand_or_on_purpose_alone(scenario, case):
    run = played(scenario, case)
    assert run.outcome == "ok"
    assert run.diagnosis.findings == (), str(run.diagnosis)
