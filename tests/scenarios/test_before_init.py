"""Ranks that are stuck before init_process_group are reported; those that prepare something are not."""

from __future__ import annotations

import re

import pytest

from tests.conftest import VICTIMS, marked_lines

SCRIPT = VICTIMS / "before_init.py"
STUCK = re.findall(r"# culprit: (\w+)", SCRIPT.read_text())
BUSY = [case for case in re.findall(r"^def (\w+)\(\)", SCRIPT.read_text(), re.MULTILINE) if case not in STUCK]


def played(scenario, case):
    def play(world):
        run = world.run(SCRIPT, case, patience=2.0, stream=None).wait(60)
        shown = str(world.status())
        assert case in BUSY or ("idle" not in shown and "blocked" in shown)
        return run

    return scenario(f"before_init/{case}", play, world="shared_world", patience=2.0)


@pytest.mark.world
@pytest.mark.parametrize("case", STUCK)
def test_all_ranks_are_stuck_before_the_start_up(scenario, case):
    run = played(scenario, case)
    assert [(f.code, f.culprits) for f in run.diagnosis.errors] == [("DDP313", (0, 1, 2, 3))]
    finding = run.diagnosis.errors[0]
    lines = {site.line for _, site in finding.where}
    assert lines and lines <= set(marked_lines(SCRIPT, "culprit", case))
    assert any("init_process_group" in text for text in finding.evidence)
    stacks = [text for text in finding.evidence if text.startswith("Stack of ")]
    assert stacks and all(f"{case} (" in text for text in stacks)
    assert (run.outcome, run.exit_status) == ("hang", 3)


@pytest.mark.world
@pytest.mark.parametrize("case", BUSY)
def test_ranks_that_prepare_something_are_not_stuck(scenario, case):
    run = played(scenario, case)
    assert (run.outcome, run.diagnosis.findings) == ("ok", ()), str(run.diagnosis)


@pytest.mark.world
def test_arguments_that_the_script_refuses(scenario, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float)\n"
        "arguments = parser.parse_args()\n"
    )
    run = scenario(
        "before_init/refused_arguments",
        lambda world: world.run(script, "--lr", "fast", stream=None).wait(30),
        world="shared_world",
    )
    assert (run.outcome, run.exit_status) == ("crash", 2)
    (finding,) = run.diagnosis.findings
    assert (finding.code, finding.culprits) == ("DDP312", (0, 1, 2, 3))
    assert "refused its arguments" in finding.summary
    assert finding.summary.endswith("argument --lr: invalid float value: 'fast'.")
    assert {site.line for _, site in finding.where} == {4}


@pytest.mark.full
@pytest.mark.world
def test_a_script_that_starts_its_ranks_itself(world, tmp_path):
    script = tmp_path / "launcher.py"
    script.write_text(
        "import os, subprocess, sys\nimport torch.distributed as dist\n"
        "if 'CHILD' not in os.environ:\n"
        "    more = {'CHILD': '1', 'WORLD_SIZE': '1', 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': '0'}\n"
        "    env = {**os.environ, **more, 'RANK': '0', 'LOCAL_RANK': '7'}\n"
        "    subprocess.run([sys.executable, __file__], env=env, check=True)\n"
        "else:\n    dist.init_process_group('gloo')\n    dist.destroy_process_group()\n"
    )
    run = world.run(script, "--steps", "2", stream=None).wait(60)
    assert (run.outcome, run.exit_status) == ("ok", 0)
    (finding,) = run.diagnosis.findings
    assert (finding.code, finding.severity, finding.culprits) == ("DDP707", "warning", tuple(range(world.size)))
    assert {site.line for _, site in finding.where} == {6}
    assert f"ddpnb run -- python {script} --steps 2" in finding.remedy
    assert "ddpnb run -- python" in run.log(0) and "ddpnb run --" not in run.log(1)
