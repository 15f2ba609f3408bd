"""``ddpnb run --record``: the command runs as itself."""

from __future__ import annotations

import signal
import subprocess

import pytest

from ddpnb.cli import main
from tests.cli.commands import DDPNB, begin, ddpnb


def test_the_command_takes_the_place_of_ddpnb(tmp_path):
    done = ddpnb(
        "run", "--record", "--dir", "records", "--", "sh", "-c", 'cat; echo "said $$" >&2; exit 7',
        cwd=tmp_path, input="typed",
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (7, "typed")
    first, said = done.stderr.splitlines()
    assert first == f"ddpnb: recording. What the ranks do, now or later: ddpnb diagnose {tmp_path / 'records'}"
    assert said.startswith("said ")
    killed = " ".join([*DDPNB, "run", "--record", "--", "sh", "-c", "'kill -9 $$'; echo $?"])
    shell = subprocess.run(["sh", "-c", killed], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert shell.stdout == "137\n"


def test_a_signal_reaches_the_command(tmp_path):
    process = begin(
        "run", "--record", "--", "sh", "-c", "trap 'echo stopped; exit 5' TERM; echo begun; while :; do sleep 0.05; done",
        cwd=tmp_path, output=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=240)[0] == "stopped\n"
    assert process.returncode == 5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--record", "--json", "v.json", "--", "true"], "--json does not go with --record"),
        (["--dir", "records", "--", "true"], "--dir goes with --record"),
        (["--record", "--"], "no command given after --"),
        (["--record", "--", "no-such-program"], "cannot run 'no-such-program'"),
        (["--record", "missing.py"], "missing.py"),
    ],
)
def test_what_is_refused_leaves_nothing(tmp_path, options, said, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["run", *options]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
@pytest.mark.world
def test_where_there_is_no_room_the_training_runs_without_records(tmp_path):
    (tmp_path / "train.py").write_text(
        "import torch\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "dist.all_reduce(torch.ones(1))\ndist.destroy_process_group()\nprint('trained')\n"
    )
    small = " ".join(["ulimit -f 2000;", "exec", *DDPNB, "run", "--record", "--dir", "records", "-n", "1", "train.py"])
    done = subprocess.run(["sh", "-c", small], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert done.stderr.count("this process is not recorded: OSError: [Errno 27] File too large") == 1
