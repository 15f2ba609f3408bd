"""Programs of real frameworks, each with its usual command, alone and behind ``ddpnb run --``."""

from __future__ import annotations

import json
import sys
import warnings

import pytest

from tests.matrix.program import programs

_DELETED = "as torch deleted the process group"
pytestmark = [
    pytest.mark.matrix, pytest.mark.timeout(600), pytest.mark.filterwarnings(f"default:.*{_DELETED}:UserWarning"),
]  # fmt: skip
STATUS = {"ok": 0, "hang": 3, "divergence": 4}  # else that of the command, which is 1 for all programs here


def prefixed(command, program):
    """The command behind the prefix, and the diagnosis as JSON."""
    run = command(program, sys.executable, "-m", "ddpnb", "run", "--json", "verdict.json", "--")
    file = run.folder / "verdict.json"
    assert file.exists(), run.output[-4000:]
    return run, json.loads(file.read_text())


def alone(command, program):
    """The command without the prefix; again, with a warning, where torch fails as it deletes the process group."""
    for _ in range(5):
        run = command(program, deadline=60)
        if run.status == 0 or not run.failed_in_torch():
            break
        how = "was aborted" if run.status else "did not end"
        warnings.warn(f"{program.name}, without ddpnb, {how} {_DELETED}", stacklevel=2)
        run.end()
    assert run.status == 0 and run.losses, run.output[-4000:]
    return run


@pytest.mark.parametrize("program", programs("healthy"), ids=lambda program: program.name)
def test_healthy(program, command):
    plain = alone(command, program)
    run, verdict = prefixed(command, program)
    assert run.losses == plain.losses, run.output[-4000:]
    assert (run.status, verdict["outcome"]) == (plain.status, "ok"), run.output[-4000:]
    assert [f["summary"] for f in verdict["findings"] if f["severity"] == "error"] == []
    assert verdict["world_size"] == 2
    assert run.left() == []


@pytest.mark.parametrize("program", programs("broken"), ids=lambda program: program.name)
def test_broken(program, command):
    run, verdict = prefixed(command, program)
    shown = run.output[-4000:]
    assert verdict["outcome"] in program.outcome.split(" or "), shown
    assert verdict["findings"], shown
    finding = verdict["findings"][0]
    assert finding["code"] == program.expect, shown
    assert finding["culprits"] == list(program.culprits), shown
    assert finding["sides"] == [list(side) for side in program.sides], shown
    assert {place["file"] for place in finding["where"]} == {program.path.name}, shown
    hint = [finding["hint"]["line"]] if finding["hint"] else []
    assert program.lines & {*hint, *(place["line"] for place in finding["where"])}, shown
    assert program.remedy in finding["remedy"], shown
    assert run.status == STATUS.get(verdict["outcome"], 1), shown
    assert run.left() == []


@pytest.mark.parametrize(
    ("name", "vary", "minimal"),
    [
        ("hydra", (), [{"name": "trainer.stop_below", "value": "100"}]),
        ("transformers_trainer", ("--vary", "nproc=1|2"), [{"name": "--nproc_per_node", "value": "2"}]),
    ],
)
def test_bisect(name, vary, minimal, command):
    (program,) = [program for program in programs("broken") if program.name == name]
    prefix = (sys.executable, "-m", "ddpnb", "bisect", "--json", "result.json", *vary, "--")
    run = command(program, *prefix, deadline=400)
    assert run.status == 0, run.output[-4000:]
    result = json.loads((run.folder / "result.json").read_text())
    assert result["minimal"] == minimal
    assert result["finding"]["code"] == program.expect
    assert run.left() == []
