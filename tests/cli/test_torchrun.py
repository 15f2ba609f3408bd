"""``ddpnb run SCRIPT``: torchrun's options, in processes that are as plain as its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ddpnb.cli import parse


@pytest.mark.parametrize("options", [pytest.param(["-n", "2"], marks=pytest.mark.full), ["-n", "2", "--fork"]])
def test_a_module_on_two_ranks(options, job, cli):
    done = cli("run", *options, "-m", "train", "well", cwd=job)
    said = "ddpnb: ok: 2 ranks, 5 collectives on each\n"
    assert (done.returncode, done.stderr, done.stdout.count("total")) == (0, said, 2)


@pytest.mark.parametrize("options", [pytest.param([], marks=pytest.mark.full), ["--fork"]], ids=["new", "fork"])
def test_an_exception_of_the_only_rank(options, tmp_path, cli):
    (tmp_path / "fails.py").write_text("import torch\n\nraise ValueError('as asked')\n")
    done = cli("run", "-n", 1, *options, "--json", "v.json", "fails.py", cwd=tmp_path)
    (finding,) = json.loads((tmp_path / "v.json").read_text())["findings"]
    assert (done.returncode, finding["code"], finding["culprits"]) == (1, "DDP312", [0]), done.stderr
    assert "ValueError: as asked" in finding["summary"] and finding["where"][0]["line"] == 3


@pytest.mark.parametrize("options", [["--nproc-per-node", "2"], ["--nproc_per_node=2", "--standalone"]])
def test_torchruns_spellings(options):
    given = parse(["run", *options, "-m", "size", "--nproc", "3"])
    assert (given.nproc, given.module, given.script, given.args) == (2, True, "size", ["--nproc", "3"])


def test_a_script_that_starts_its_own_ranks(job, cli):
    """They are found below the ranks of the script, which itself makes no group."""
    done = cli("run", "-n", 1, "--fork", job / "spawn.py", "well", "fork", cwd=job)
    assert (done.returncode, done.stdout.count("total")) == (0, 2)


def test_the_port_of_the_store(tmp_path, cli):
    (tmp_path / "port.py").write_text("import os; print('port', os.environ['MASTER_PORT'])\n")
    done = cli("run", "-n", 1, "--fork", "--master_port", "29777", "port.py", cwd=tmp_path)
    assert "port 29777" in done.stdout


def test_nothing_says_notebook(tmp_path, cli):
    (tmp_path / "plain.py").write_text(
        "import builtins, os, sys\n"
        "told = [hasattr(sys, 'ps1'), hasattr(builtins, 'get_ipython'), hasattr(builtins, '__IPYTHON__'), 'IPython' in sys.modules,"
        " type(sys.stdout).__name__, [name for name in os.environ if name.startswith(('JPY', 'IPP', 'MPLBACKEND'))], __name__, sys.argv[1:]]\n"
        "print(told)\n"
    )
    done = cli("run", "-n", 1, "plain.py", "a", cwd=tmp_path)
    plain = subprocess.run(
        [sys.executable, "plain.py", "a"], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout == f"[rank 0] {plain.stdout}"
