"""``ddpnb pitfalls``."""

from __future__ import annotations

import pytest

from ddpnb import pitfalls
from ddpnb.cli import main
from ddpnb.recording.protocol import FORK


def test_list(capsys):
    assert main(["pitfalls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = [line for line in lines if line.startswith("  DDP")]
    assert len(listed) == len(pitfalls.names()) and "barrier-under-if" in listed[0] and " easy " in listed[0]
    assert [line for line in lines if line[:1] != " "][:2] == ["3 collectives", "4 model and gradients"]


def test_list_what_has_some_words(capsys):
    assert main(["pitfalls", "list", "barrier", "easy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[0] == "3 collectives"
        and 1 < len(lines) < 12
        and all("DDP" in line for line in lines[1:] if line[0] == " ")
    )


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
        (["list", "no-such-words"], "no pitfall has the words 'no-such-words'"),
        (["list", "--fixed"], "takes no --fixed"),
        (["show", "barrier-under-if", "unused-head"], "needs the name of a pitfall"),
    ],
)
def test_wrong_use(capsys, arguments, words):
    assert main(["pitfalls", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.world
def test_run_broken(cli, monkeypatch):
    monkeypatch.setenv(FORK, "training")
    broken = cli("pitfalls", "run", "barrier-under-if")
    assert broken.returncode == 3
    assert "DDP301" in broken.stderr and "Run the fixed script: ddpnb pitfalls run" in broken.stderr


@pytest.mark.full
@pytest.mark.world
def test_run_fixed(cli):
    fixed = cli("pitfalls", "run", "barrier-under-if", "--fixed")
    assert fixed.returncode == 0 and "What was fixed: " in fixed.stderr and "+++ fixed.py" in fixed.stderr
