"""``ddpnb reenact`` and ``ddpnb export``, and the exported script under torchrun and ``ddpnb run``."""

from __future__ import annotations

import ast
import json
import os
import subprocess

import pytest

from ddpnb import export
from ddpnb.studies.reenactment import reenact as reenacting
from tests.cli.jobs import STARTS, TORCHRUN
from tests.reports import real
from tests.studies.reenactment import programs
from tests.studies.reenactment.programs import recording_of


@pytest.fixture
def saved(tmp_path):
    def save(kind, world=2):
        path = tmp_path / "hang.ddpnb"
        recording_of(kind, world).save(path)
        return path

    return save


@pytest.mark.full
@pytest.mark.world
def test_a_recording_is_re_enacted(saved, tmp_path, cli, monkeypatch):
    monkeypatch.setattr(reenacting, "WAIT_S", 60.0)  # for the start of ranks too, which takes long on a busy machine
    recording = saved(programs.never_called)
    done = cli("reenact", recording, "--json", "found.json", "--save", "live.ddpnb", cwd=tmp_path, fork=True)
    assert done.returncode == 3, done.stderr
    assert "2 live ranks give the finding of the recording, DDP301" in done.stdout
    assert json.loads((tmp_path / "found.json").read_text())["findings"][0]["code"] == "DDP301"
    assert (tmp_path / "live.ddpnb").exists()


def test_nothing_to_re_enact(tmp_path, cli):
    (tmp_path / "empty.ddpnb").write_text("")
    done = cli("reenact", "empty.ddpnb", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.full
@pytest.mark.world
@pytest.mark.parametrize(
    "launcher", [pytest.param(TORCHRUN, marks=pytest.mark.full, id="torchrun"), pytest.param(STARTS, id="started")]
)
def test_a_script_hangs_without_ddpnb_until_its_time_out(job, launcher):
    path = job / "repro.py"
    assert export(recording_of(programs.receives_first, 2), path, timeout=6) == 2
    imported = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import)]
    assert "ddpnb" not in {alias.name for node in imported for alias in node.names}
    variables = {**os.environ, "DDPNB_PARENT": "1"}  # as below a process that has started ranks
    done = subprocess.run(
        [*launcher, path], cwd=job, env=variables, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode != 0
    assert "Timed out waiting" in done.stderr, done.stderr


@pytest.mark.full
@pytest.mark.world
def test_ddpnb_finds_in_the_script_what_the_report_shows(tmp_path, cli):
    shows = next(report for report in real.REPORTS if report.name == "flight-recorder")
    assert cli("export", real.FOLDER / shows.name, "-o", "repro.py", cwd=tmp_path).returncode == 0
    done = cli("run", "-n", 4, "--fork", "--json", "found.json", "repro.py", cwd=tmp_path)
    assert done.returncode == 3
    finding = json.loads((tmp_path / "found.json").read_text())["findings"][0]
    assert (finding["code"], tuple(finding["culprits"])) == (shows.code, shows.culprits)
    assert finding["collective"]["op"] == shows.op
