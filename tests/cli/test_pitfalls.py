"""``ddpnb pitfalls``."""

from __future__ import annotations

import pytest

from ddpnb import pitfalls
from ddpnb.cli import main
from ddpnb.recording.protocol import FORK


def test_list(capsys):
    assert main(["pitfalls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(pitfalls.names()) and any("barrier-under-if" in line for line in lines)


def test_show(capsys):
    assert main(["pitfalls", "show", "barrier-under-if"]) == 0
    told = capsys.readouterr().out
    assert "[DDP301]" in told and "Look at:" in told and "+++ fixed.py" in told and "def main" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show"], "needs the name of a pitfall"),
        (["run", "barier-under-if"], "Did you mean barrier-under-if"),
        (["show", "../../etc"], "there is no pitfall"),
        (["list", "more"], "takes no other arguments"),
    ],
)
def test_wrong_use(capsys, arguments, words):
    assert main(["pitfalls", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.world
def test_run_broken(cli, monkeypatch):
    monkeypatch.setenv(FORK, "training")
    broken = cli("pitfalls", "run", "barrier-under-if")
    assert broken.returncode == 3
    assert "DDP301" in broken.stderr and "Run the fixed script: ddpnb pitfalls run" in broken.stderr


@pytest.mark.full
@pytest.mark.world
def test_run_fixed(cli):
    assert cli("pitfalls", "run", "barrier-under-if", "--fixed").returncode == 0
