"""``ddpnb diagnose`` on the command line."""

from __future__ import annotations

import json

import pytest

import ddpnb
from ddpnb.cli import main
from tests.reports.reading import OLD_WATCHDOG, XID
from tests.reports.told import progress, report


@pytest.fixture
def diagnose(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)

    def run(*args: object) -> tuple[int, str]:
        try:
            status = main(["diagnose", *map(str, args)])
        except SystemExit as error:
            status = int(error.code or 0)
        said = capsys.readouterr()
        assert said.out == ""
        return status, said.err

    return run


def test_a_log(diagnose, tmp_path):
    (tmp_path / "job.log").write_text(OLD_WATCHDOG)
    status, said = diagnose("--json", "out.json", "--save", "out.ddpnb", "job.log")
    assert status == 3
    assert "Read job.log (NCCL watchdog log, launcher's log): found ranks 0, 2 and 3." in said
    assert "Probably rank 1 did not call the all_reduce #1812" in said and "What is not known:" in said
    told = json.loads((tmp_path / "out.json").read_text())
    assert (told["schema"], told["outcome"], told["findings"][0]["culprits"]) == (2, "hang", [1])
    assert told["exit_codes"]["0"] == -6 and told["notes"]
    assert ddpnb.diagnose(ddpnb.load("out.ddpnb")).to_json() == told


def test_the_exit_status_says_whether_something_is_wrong(diagnose, tmp_path):
    report(progress(0, 57, 57), progress(1, 57, 57), size=2).save(tmp_path / "fine.ddpnb")
    assert diagnose("fine.ddpnb")[0] == 0
    (tmp_path / "kern.log").write_text(XID)
    assert diagnose("kern.log")[0] == 3


@pytest.mark.parametrize("args", [(), ("none.log",), ("--json", "no/such/folder", "job.log"), ("empty",)])
def test_what_cannot_be_read(diagnose, tmp_path, args):
    (tmp_path / "job.log").write_text("nothing that is known\n")
    (tmp_path / "empty").mkdir()
    status, said = diagnose(*args)
    assert status == 2
    assert "Traceback" not in said
