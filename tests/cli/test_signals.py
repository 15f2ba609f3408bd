"""Signals that ``ddpnb run`` gets belong to the program: its handlers run, and it has as long to end as under torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE

import psutil
import pytest

from tests.cli.commands import assert_all_ended, begin, family
from tests.cli.jobs import STARTS, TORCHRUN

#: a rank, or a command, that notes each signal, and ends in the way that its first argument says
_NOTES = """
import os, signal, sys, time
me = os.environ.get("RANK", "-")
def note(number, frame):
    with open(f"got-{me}", "a") as file:
        file.write(f"{signal.Signals(number).name}\\n")
    if number not in (signal.SIGUSR1, signal.SIGUSR2) and sys.argv[1] != "goes-on":
        time.sleep(0.3)
        open(f"saved-{me}", "w").close()
        sys.exit(int(sys.argv[1]))
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, note)
open(f"begun{me}", "w").close()
while True:
    time.sleep(0.02)
"""
_GROUP = """
import os, sys, torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
exec(open("notes.py").read())
"""
PREFIX = ["--", sys.executable]


@pytest.mark.parametrize("command", [["-m", "ddpnb"], ["ddpnb"]], ids=" ".join)
@pytest.mark.parametrize("moment", ["ddpnb.private_builtins", "ddpnb.errors"])
def test_an_interrupt_while_a_command_is_imported_shows_no_traceback(tmp_path, monkeypatch, command, moment):
    (tmp_path / "ddpnb").write_text("from ddpnb.cli import main\nmain()\n")  # as the script that pip installs
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        f"sys.addaudithook(lambda event, given: event == 'import' and given[0] == {moment!r} and os.kill(os.getpid(), 2))\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])]))
    done = subprocess.run([sys.executable, *command, "--version"], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (-signal.SIGINT, b"")


@pytest.fixture
def notes(job):
    (job / "notes.py").write_text(_NOTES)
    (job / "group.py").write_text(_GROUP)
    return job


def started(folder, *args, ranks=2, environment=None, **more):
    """``ddpnb run`` with these arguments, once so many ranks have begun."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (environment or {}).items():
            patch.setenv(name, value)
        process = begin("run", "--json", "v.json", *args, cwd=folder, output=PIPE, **more)
    deadline = time.monotonic() + 240
    while len(list(folder.glob("begun*"))) < ranks:
        assert time.monotonic() < deadline and process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    return process, family(process)


def got(folder):
    """What each rank got, and which have saved their state."""
    return (
        {path.name[4:]: path.read_text().split() for path in sorted(folder.glob("got-*"))},
        sorted(path.name[6:] for path in folder.glob("saved-*")),
    )


def ended(process, children):
    """The exit status, and what was said; nothing runs any more."""
    _, said = process.communicate(timeout=120)
    assert_all_ended(process, children)
    assert "Traceback" not in said, said
    return process.returncode, said


@pytest.mark.parametrize(
    ("options", "number", "status"),
    [
        pytest.param([], signal.SIGTERM, 143, marks=pytest.mark.full, id="term"),
        pytest.param(["--fork"], signal.SIGINT, 130, marks=pytest.mark.full, id="fork-int"),
        pytest.param([], signal.SIGINT, 130, id="int"),
        pytest.param([], signal.SIGHUP, 129, marks=pytest.mark.full, id="hup"),
        pytest.param([], signal.SIGQUIT, 131, marks=pytest.mark.full, id="quit"),
        pytest.param(["--scaling", "2"], signal.SIGTERM, 143, marks=pytest.mark.full, id="scaling"),
    ],
)
def test_each_rank_runs_its_handler(notes, options, number, status):
    arguments = ["notes.py", "0"] if options else ["-n", "2", "notes.py", "0"]
    if options == ["--fork"]:
        arguments = ["-n", "2", *options, "notes.py", "0"]
    process, children = started(notes, *arguments)
    process.send_signal(number)
    code, _ = ended(process, children)
    assert (code, got(notes)) == (status, ({rank: [number.name] for rank in "01"}, ["0", "1"]))
    assert json.loads((notes / "v.json").read_text())["outcome"] == "interrupted"


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
@pytest.mark.parametrize("status", [0, pytest.param(75, marks=pytest.mark.full)])
def test_a_command_runs_its_handler_and_has_its_own_status(notes, number, status):
    process, children = started(notes, *PREFIX, "notes.py", str(status), ranks=1)
    process.send_signal(number)
    code, said = ended(process, children)
    assert said.splitlines()[-1] == "ddpnb: interrupted; no ranks are left running"
    assert (code, got(notes)) == (status, ({"-": [number.name]}, ["-"]))
    assert json.loads((notes / "v.json").read_text())["outcome"] == "interrupted"


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_ranks_of_torchrun(notes, number):
    """It passes the signal on, waits, and exits with its own status."""
    process, children = started(notes, "--", *TORCHRUN, "group.py", "0")
    process.send_signal(number)
    _, said = process.communicate(timeout=120)
    assert_all_ended(process, children)
    assert process.returncode == 1 and "interrupted" in said
    assert got(notes) == ({rank: [number.name] for rank in "01"}, ["0", "1"])


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_a_signal_to_the_whole_group_arrives_once(notes, number):
    """As from a terminal, Slurm, or ``timeout``: the command has got it already."""
    process, children = started(notes, *PREFIX, "notes.py", "7", ranks=1, own_group=True)
    os.killpg(process.pid, number)
    code, _ = ended(process, children)
    assert (code, got(notes)) == (7, ({"-": [number.name]}, ["-"]))


@pytest.mark.parametrize("form", ["ranks", pytest.param("command", marks=pytest.mark.full)])
def test_what_does_not_end_is_killed_when_its_time_is_over(notes, form):
    arguments = {"ranks": ["-n", "2", "notes.py"], "command": [*PREFIX, "notes.py"]}[form]
    ranks = 2 if form == "ranks" else 1
    given = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "0.5"}
    process, children = started(notes, *arguments, "goes-on", ranks=ranks, environment=given)
    process.send_signal(signal.SIGTERM)
    code, said = ended(process, children)
    assert code == 143 and "is killed" in said
    assert [*got(notes)[0].values()] == [["SIGTERM"]] * ranks


@pytest.mark.parametrize("form", ["ranks", pytest.param("command", marks=pytest.mark.full)])
def test_a_second_interrupt_ends_all_at_once(notes, form):
    arguments = {"ranks": ["-n", "2", "notes.py"], "command": [*PREFIX, "notes.py"]}[form]
    ranks = 2 if form == "ranks" else 1
    process, children = started(notes, *arguments, "goes-on", ranks=ranks)
    process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + 240
    while len(got(notes)[0]) < ranks:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    code, said = ended(process, children)
    assert code == 130 and "is killed" not in said


@pytest.mark.parametrize("form", ["ranks", pytest.param("command", marks=pytest.mark.full)])
def test_other_signals_are_passed_on_and_end_nothing(notes, form):
    """Slurm announces the end of a job by SIGUSR1, if it is asked to; SIGTERM follows."""
    arguments = {"ranks": ["-n", "2", "notes.py"], "command": [*PREFIX, "notes.py"]}[form]
    ranks = ["0", "1"] if form == "ranks" else ["-"]
    process, children = started(notes, *arguments, "0", ranks=len(ranks))
    for number, count in ((signal.SIGUSR1, 1), (signal.SIGUSR2, 2)):
        process.send_signal(number)
        deadline = time.monotonic() + 240
        while any(len(names) < count for names in got(notes)[0].values()) or len(got(notes)[0]) < len(ranks):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    ended(process, children)
    assert got(notes) == ({rank: ["SIGUSR1", "SIGUSR2", "SIGTERM"] for rank in ranks}, ranks)


@pytest.mark.full
def test_a_launcher_that_is_killed(notes):
    """Its ranks continue by themselves: they are asked to end, and have time for it."""
    process, children = started(notes, "--", *STARTS, "group.py", "0")
    launcher = next(child for child in psutil.Process(process.pid).children() if "starts.py" in child.cmdline())
    launcher.kill()
    _, said = process.communicate(timeout=120)
    assert_all_ended(process, children)
    assert process.returncode == 137 and "left 2 ranks that run" in said
    assert got(notes) == ({rank: ["SIGTERM"] for rank in "01"}, ["0", "1"])


@pytest.mark.full
def test_a_launcher_that_ends_before_its_ranks(notes):
    """It has passed the signal on and does not wait: the ranks still have time to save their state."""
    script = "trap 'kill $!; exit 9' TERM; {} starts.py group.py 0 & wait"
    (notes / "starts.py").write_text((notes / "starts.py").read_text().replace("rank.kill()", "rank.terminate()"))
    (notes / "launcher.sh").write_text(script.format(sys.executable))
    process, children = started(notes, "--", "bash", "launcher.sh")
    process.send_signal(signal.SIGTERM)
    code, _ = ended(process, children)
    assert (code, got(notes)) == (9, ({rank: ["SIGTERM"] for rank in "01"}, ["0", "1"]))
