"""A sample of the healthy programs for the fast lane, on forked ranks: ``test_programs`` compares all of them with torchrun."""

from __future__ import annotations

import json

import pytest

from tests.harmless.comparing import PROGRAMS, Outcome, difference, free_port, lines

PLAIN = """
import os, runpy, sys
ranks = []
del sys.argv[0]
for rank in range(2):
    if pid := os.fork():
        ranks.append(pid)
        continue
    os.environ["RANK"] = str(rank)
    log = os.open(f"plain/rank{rank}.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    runpy.run_path(sys.argv[0], run_name="__main__")
    sys.stdout.flush()
    os._exit(0)
assert not any([os.waitpid(pid, 0)[1] for pid in ranks])
"""


@pytest.mark.full
@pytest.mark.world
@pytest.mark.parametrize(
    ("name", "arguments"), [("parameters", ["100"]), pytest.param("tensors", [], marks=pytest.mark.full)]
)
def test_a_program(name, arguments, tmp_path, forked, cli, monkeypatch):
    script = PROGRAMS / f"{name}.py"
    (tmp_path / "plain").mkdir()
    address = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    for variable, value in address.items():
        monkeypatch.setenv(variable, value)
    plain = forked.run(PLAIN, script, *arguments, cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    for variable in address:
        monkeypatch.delenv(variable)
    done = cli("run", "-n", 2, "--fork", "--json", "v.json", "--log-dir", "logs", script, *arguments, cwd=tmp_path)
    assert json.loads((tmp_path / "v.json").read_text())["findings"] == []
    expected = Outcome(0, lines(tmp_path / "plain"))
    assert sorted(expected.lines) == ["0", "1"] and all(expected.lines.values())
    assert difference(expected, Outcome(done.returncode, lines(tmp_path / "logs"))) == ""
