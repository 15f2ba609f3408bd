"""What the runner of PyTorch's own tests calls a difference. It starts no test here."""

from __future__ import annotations

import pytest

from tests.harmless.torch_tests import UNREACHED, Results, differences, table


@pytest.fixture
def results(tmp_path):
    made = Results(tmp_path / "results" / "all.json")
    add(made, "plain", {"T.a": "passed", "T.b": "failed", "T.c": "passed"}, status=1)
    return made


def add(results, mode, outcomes, status=0, errors=()):
    command = {
        "suite": "rpc",
        "mode": mode,
        "tests": list(outcomes),
        "seconds": 3.0,
        "status": status,
        "errors": list(errors),
    }
    results.add(command, {test: {"outcome": outcome, "seconds": 1.5} for test, outcome in outcomes.items()})


def test_what_passes_plainly_must_pass(results, tmp_path):
    add(results, "run", {"T.a": "passed", "T.c": "passed"})
    assert differences(results, "rpc", "run") == []
    assert Results(tmp_path / "results" / "all.json").known == results.known
    assert Results(tmp_path / "results" / "all.json", again=True).known["commands"] == []
    _, plain, run = table(results).splitlines()
    assert plain.split() == ["rpc", "plain", "3", "2", "1", "0", "1", "0", "3", "1.00"]
    assert run.split() == ["rpc", "run", "2", "2", "0", "0", "1", "0", "3", "1.00"]


@pytest.mark.parametrize(
    ("outcomes", "more", "said"),
    [
        ({"T.a": "failed", "T.c": "passed"}, {"status": 1}, ["T.a failed; plainly it passes"]),
        ({"T.a": UNREACHED}, {"status": 3}, ["T.a not reached; plainly it passes"]),
        ({"T.a": "passed", "T.c": "passed"}, {"status": None}, ["the command with T.a and 1 more did not end"]),
        ({"T.a": "passed"}, {"status": 3}, ["status 3 of the command with T.a and 0 more, all of which passed"]),
        ({"T.a": "passed"}, {"errors": ["Rank 1 hangs."]}, ["found with T.a and 0 more: Rank 1 hangs."]),
    ],
)
def test_what_differs_is_said(results, outcomes, more, said):
    add(results, "run", outcomes, **more)
    assert differences(results, "rpc", "run") == [f"rpc run: {line}" for line in said]
