"""Programs that are compiled on one rank in another way than on the others, and those that may be."""

from __future__ import annotations

import pytest

from ddpnb.recording.events.runs import Compilation
from tests.conftest import VICTIMS, marked_lines

SCRIPT = VICTIMS / "compiled.py"
TRACED = {"n": 2, "patience": 3.0}
pytestmark = pytest.mark.world


def played(scenario, case):
    return scenario(f"compiled/{case}", lambda world: world.run(SCRIPT, case, stream=None).wait(120))


@pytest.mark.parametrize(
    ("case", "code", "words"),
    [
        ("guard", "DDP319", "Rank 1 compiled normalise"),
        ("graph_break", "DDP319", "Rank 1 broke the graph of normalise"),
        ("other_size", "DDP303", "Rank 1 calls all_reduce of"),
    ],
)
def test_named(scenario, case, code, words):
    run = played(scenario, case)
    (finding,) = run.diagnosis.errors
    assert (finding.code, finding.culprits, run.outcome, run.exit_status) == (code, (1,), "hang", 3), str(run.diagnosis)
    assert finding.summary.startswith(words)
    lines = {rank: {site.line for one, site in finding.where if one == rank} for rank in (0, 1)}
    assert lines[1] & marked_lines(SCRIPT, "culprit", case) and lines[0] & marked_lines(SCRIPT, "waiting", case)
    assert any("Rank 1 compiled" in text for text in finding.evidence)
    assert not any("eval_with_key" in site.file for _, site in finding.where)
    if case == "guard":
        assert any("centre" in text and "for the second time" in text for text in finding.evidence)


@pytest.mark.parametrize("case", ["alike", "slow", "own_sizes", "gives_up"])
def test_silent(scenario, case):
    run = played(scenario, case)
    assert (run.outcome, run.diagnosis.findings, run.exit_status) == ("ok", (), 0), str(run.diagnosis)
    made = {rank: len(record.events(Compilation)) for rank, record in run.recording.ranks.items()}
    assert made[0] and (made[0] == made[1]) == (case in ("alike", "slow")), made
