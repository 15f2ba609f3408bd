"""``ddpnb run -- COMMAND``: whatever starts the ranks, as a stranger types it."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from subprocess import PIPE

import pytest

import ddpnb as package
from ddpnb.cli import main
from tests.cli.commands import assert_all_ended, assert_no_own_frames, begin, left_by
from tests.cli.jobs import TORCHRUN, run, spawn, wait_for_job


def test_a_healthy_job(job, cli):
    done, verdict = run(cli, job, *spawn("well"))
    assert (done.returncode, verdict["outcome"], verdict["findings"], verdict["world_size"]) == (0, "ok", [], 2)
    assert verdict["exit_codes"] == {"0": 0, "1": 0}
    assert sorted(re.findall("total . 8.0", done.stdout)) == ["total 0 8.0", "total 1 8.0"]


@pytest.mark.full
def test_a_job_that_hangs(job):
    process = begin("run", "--json", "v.json", "--save", "hang.ddpnb", "--", *TORCHRUN, "train.py", "skip", cwd=job)
    _, said = process.communicate(timeout=100)
    assert process.returncode == 3
    assert_names_the_rank_that_skips(job / "v.json")
    assert package.diagnose(package.load(job / "hang.ddpnb")).findings[0].code == "DDP301"
    assert_all_ended(process, [])
    assert said.rfind("DDP301") > said.rfind("Traceback")  # what the launcher says of its end comes first


def assert_names_the_rank_that_skips(path):
    verdict = json.loads(path.read_text())
    assert (verdict["outcome"], verdict["exit_codes"]["1"]) == ("hang", 0)
    (finding,) = verdict["findings"]
    assert (finding["code"], finding["culprits"], finding["waiting"]) == ("DDP301", [1], [0])
    assert {os.path.basename(place["file"]) for place in finding["where"]} == {"steps.py"}


@pytest.mark.full
def test_jobs_side_by_side_do_not_mix(job):
    commands = {mode: spawn(mode) for mode in ("skip", "well")}
    processes = [
        begin("run", "--json", f"{mode}.json", "--", *command, cwd=job, output=PIPE)
        for mode, command in commands.items()
    ]
    outputs = [process.communicate(timeout=100)[0] for process in processes]
    assert [process.returncode for process in processes] == [3, 0]
    assert_names_the_rank_that_skips(job / "skip.json")
    well = json.loads((job / "well.json").read_text())
    assert (well["outcome"], well["findings"], well["exit_codes"]) == ("ok", [], {"0": 0, "1": 0})
    assert [output.count("total") for output in outputs] == [1, 2]
    assert [left_by(process) for process in processes] == [[], []]


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.full)])
def test_a_rank_that_raises(job, cli, method):
    done, verdict = run(cli, job, *spawn("raise", method))
    assert (done.returncode, verdict["outcome"]) == (1, "crash")
    finding = verdict["findings"][0]
    assert (finding["code"], finding["culprits"]) == ("DDP312", [1])
    assert "ValueError: a bad record" in finding["summary"]


LAUNCHERS = [
    pytest.param([*TORCHRUN, "train.py"], marks=pytest.mark.full, id="torchrun"),
    pytest.param(spawn("")[:2], id="spawn"),
]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_rank_that_is_killed(job, cli, launcher):
    done, verdict = run(cli, job, *launcher, "kill", "fork")
    assert (done.returncode, verdict["outcome"]) == (1, "crash")
    assert (verdict["findings"][0]["code"], verdict["findings"][0]["culprits"]) == ("DDP311", [1])
    assert verdict["exit_codes"]["1"] == -signal.SIGKILL


@pytest.mark.parametrize(
    ("source", "status", "says"),
    [
        ("sys.exit(7)", 7, "exited with status 7"),
        ("import argparse; argparse.ArgumentParser().parse_args(['--bad'])", 2, "exited with status 2"),
        ("import os; os.kill(os.getpid(), 9)", 137, "was killed by SIGKILL"),
    ],
    ids=["exit", "argparse", "killed"],
)
def test_the_command_fails_before_it_makes_a_group(job, source, status, says, cli):
    (job / "fails.py").write_text(f"import sys; {source}\n")
    done, verdict = run(cli, job, sys.executable, "fails.py")
    assert (done.returncode, verdict["outcome"], verdict["findings"]) == (status, "crash", [])
    message = f"ddpnb: the command {says} before ddpnb saw a process group: see its output above. Nothing was checked."
    assert done.stderr.rstrip().splitlines()[-1] == message


def test_a_command_without_ranks(job, cli):
    done, verdict = run(cli, job, "echo", "hello")
    assert (done.returncode, done.stdout, verdict["outcome"]) == (0, "hello\n", "ok")
    assert "no process of this command has initialised a process group: nothing was checked" in done.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["run", "--"], "no command given"),
        (["run", "--", "no-such-command"], "cannot run 'no-such-command': No such file or directory"),
        (["run", "--", "."], "cannot run '.': Permission denied"),
        (["run", "-n", "2", "--", "echo"], "-n goes with a script"),
        (["run", "--fork", "--", "echo"], "--fork goes with a script"),
        (["run", "--scaling", "1,2", "--", "echo"], "--scaling goes with a script"),
        (["run", "--patience", "0", "--", "echo"], "patience"),
        (["run", "--json", "no/such/v.json", "--", "echo"], "cannot write"),
    ],
)
def test_wrong_use(args, says, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert main(args) == 2
    assert says in capfd.readouterr().err


_AGAIN = "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
_WITH_LITTLE = "os.execve(sys.executable, [sys.executable, *sys.argv[1:]], {'PATH': '/bin'})"
#: what is said, and how Python is started
UNREACHABLE = {
    "python -I ignores PYTHONPATH": ["-I"],
    "python -S ignores PYTHONPATH": ["-S"],
    "has been rewritten": ["-c", f"import os, sys; {_WITH_LITTLE}"],
    "PYTHONPATH has been replaced": ["-c", f"import os, sys; os.environ['PYTHONPATH'] = '.'; {_AGAIN}"],
}


@pytest.mark.parametrize("says", [
    says if number % 2 else pytest.param(says, marks=pytest.mark.full) for number, says in enumerate(UNREACHABLE)
])  # fmt: skip
def test_processes_that_the_recorder_cannot_reach(job, cli, says):
    (job / "alone.py").write_text("import time; time.sleep(3); print('ran')\n")
    done = cli("run", "--", sys.executable, *UNREACHABLE[says], "alone.py", cwd=job)
    assert (done.returncode, done.stdout, done.stderr.count(says)) == (0, "ran\n", 1), done.stderr


@pytest.mark.full
def test_a_command_that_replaces_itself(job, cli):
    _, verdict = run(cli, job, sys.executable, "-c", f"import os, sys; {_AGAIN}", *spawn("skip")[1:])
    assert verdict["findings"][0]["code"] == "DDP301"


def test_ranks_that_outlive_their_command(job, cli):
    """A launcher that puts its job into the background: the job is watched all the same."""
    done, verdict = run(cli, job, "bash", "-c", f"{' '.join(spawn('skip'))} >log 2>&1 & exit 0")
    assert (done.returncode, verdict["findings"][0]["code"]) == (3, "DDP301")


@pytest.mark.full
def test_two_jobs_one_after_the_other(job, cli):
    done, verdict = run(cli, job, "bash", "-c", f"{' '.join(spawn('well'))} && {' '.join(spawn('skip'))}")
    assert (done.returncode, verdict["findings"][0]["code"], verdict["world_size"]) == (3, "DDP301", 2)
    assert done.stdout.count("total") == 3


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_interrupted(job, launcher):
    cases = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
    options = ("run", "--patience", "300")
    processes = [
        begin(*options, "--json", f"{status}.json", "--", *launcher, "sleep", "fork", cwd=job) for _, status in cases
    ]
    for process, (number, status) in zip(processes, cases, strict=True):
        found = wait_for_job(process)
        process.send_signal(number)
        time.sleep(0.1)
        if process.poll() is None:
            process.send_signal(number)  # people press it again
        _, said = process.communicate(timeout=60)
        assert process.returncode in (status, -number)
        assert_no_own_frames(said)
        assert json.loads((job / f"{status}.json").read_text())["outcome"] == "interrupted"
        assert_all_ended(process, list(found.ranks.values()))


def test_interrupted_before_there_is_a_process_group(tmp_path):
    code = "import pathlib, time; pathlib.Path('begun').touch(); time.sleep(60)"
    process = begin("run", "--json", "v.json", "--", sys.executable, "-c", code, cwd=tmp_path)
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "begun").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert json.loads((tmp_path / "v.json").read_text())["outcome"] == "interrupted"
    assert "Traceback" not in said
