"""``ddpnb bisect`` as a stranger types it, on scripts that know nothing of it.

Searches run on probes without processes; with ``--full`` also on real ranks, which must give the same answers.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time

import psutil
import pytest

from ddpnb.studies.bisection import bisect as bisections
from tests.cli.commands import DDPNB, refused
from tests.scripted import ScriptedProber

APART = os.path.join(os.path.dirname(__file__), "..", "victims", "apart.py")
FORK = ["-n", "2", "--fork"]
SCRIPT = """
import argparse, torch, torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true")
parser.add_argument("--num-workers", type=int, default=0)
parser.add_argument("--evaluate", action="store_true")
given = parser.parse_args()
dist.init_process_group("gloo")
x = torch.ones(4)
for step in range(4):
    dist.all_reduce(x)
    if {condition}:
        if dist.get_rank() == 0:
            dist.all_reduce(x)
"""
SPAWNS = """
import os, runpy, socket, torch.multiprocessing as mp

def work(rank, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    runpy.run_path("train.py", run_name="__main__")

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
mp.start_processes(work, (port,), 2, start_method="fork")
import subprocess
subprocess.Popen(["sleep", "600"], start_new_session=True)  # a service that it leaves running
"""
PAIR = "given.evaluate and given.num_workers > 2"
GIT = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "init.defaultBranch=main"]

LIVE = [pytest.mark.world]
on_real_ranks = pytest.mark.parametrize("bisect", [pytest.param("real", marks=LIVE)], indirect=True)


def write(folder, condition=PAIR):
    (folder / "train.py").write_text(SCRIPT.replace("{condition}", condition))


def left(folder):
    """The processes that work in a folder."""
    return [one for one in psutil.process_iter(["cwd"]) if one.info["cwd"] == str(folder)]


@pytest.fixture(params=["scripted", pytest.param("real", marks=[pytest.mark.full, *LIVE])])
def bisect(request, cli, monkeypatch):
    """``ddpnb bisect`` on probes without processes, or on real ranks."""
    if request.param == "scripted":
        monkeypatch.setattr(bisections, "CommandProber", ScriptedProber)
    return lambda *args, cwd: cli("bisect", *args, cwd=cwd)


@pytest.mark.full
@on_real_ranks
def test_the_flags_of_a_script_are_narrowed_down(tmp_path, bisect, cli):
    write(tmp_path)
    given = ("--amp", "--num-workers", "4", "--evaluate")
    done = bisect(*FORK, "--json", "r.json", "--repro", "r.sh", "train.py", *given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["schema"], result["kind"], result["confidence"]) == (1, "set", 1.0)
    assert result["minimal"] == [{"name": "--num-workers", "value": "4"}, {"name": "--evaluate", "value": ""}]
    assert result["first_bad"] is None
    assert result["finding"]["waiting"] == [0]
    first, second = result["probes"][:2]
    assert (first["on"], first["at"], first["answer"]) == (["--amp", "--num-workers", "--evaluate"], None, "bad")
    assert first["code"] == result["finding"]["code"]
    assert (second["on"], second["answer"], second["code"]) == ([], "good", None)
    assert len(result["probes"]) <= 9
    assert "--num-workers=4 and --evaluate together" in done.stdout
    assert sorted(os.listdir(tmp_path)) == ["r.json", "r.sh", "train.py"]
    typed = (tmp_path / "r.sh").read_text().splitlines()[-1]
    assert shlex.split(typed)[:2] == ["ddpnb", "run"]
    again = cli(*shlex.split(typed)[1:], cwd=tmp_path)
    assert again.returncode != 0
    assert result["finding"]["code"] in again.stderr


def test_a_launch_command_with_variables(tmp_path, bisect):
    write(tmp_path, "__import__('os').environ.get('SHARDS') == '3'")
    (tmp_path / "spawns.py").write_text(SPAWNS)  # torchrun, which imports torch three times, is below
    command = [sys.executable, "spawns.py", "--amp"]
    done = bisect("--json", "r.json", "--vary", "amp", "--env", "SHARDS=1|3", "--", *command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["minimal"] == [{"name": "SHARDS", "value": "3"}]
    assert "SHARDS=3 ddpnb run --end-after-patience -- " in done.stdout
    assert not left(tmp_path)


def test_the_number_of_threads(tmp_path, bisect):
    write(tmp_path, "__import__('os').environ['OMP_NUM_THREADS'] == '3'")
    done = bisect(*FORK, "--env", "OMP_NUM_THREADS=1|3", "--json", "r.json", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "r.json").read_text())["minimal"] == [{"name": "OMP_NUM_THREADS", "value": "3"}]


def test_a_range_with_a_value_that_the_script_refuses(tmp_path, bisect):
    write(tmp_path, "given.num_workers > 2")
    text = (tmp_path / "train.py").read_text()
    (tmp_path / "train.py").write_text(text.replace("type=int", "type=int, choices=[0, 2, 3, 4]"))
    done = bisect(*FORK, "--range", "workers=0..4", "--json", "r.json", "train.py", "--num-workers", 4, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["kind"], result["first_bad"], result["last_good"], result["minimal"]) == ("range", 3, 2, [])


@pytest.mark.full
@on_real_ranks
def test_commits(tmp_path, bisect):
    def git(*args):
        return subprocess.run(
            [*GIT, *args], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=240
        ).stdout

    git("init", "-q")
    for number in range(6):
        condition = PAIR if number >= 3 else f"{PAIR} and step > 9"
        write(tmp_path, condition)
        with open(tmp_path / "train.py", "a") as file:
            file.write(f"# {number}\n")
        git("add", "train.py")
        git("commit", "-q", "-m", f"number {number}")
    (tmp_path / "train.py").write_text("this is not committed")
    given = ("train.py", "--evaluate", "--num-workers", "4")
    done = bisect(*FORK, "--git", "HEAD~5..HEAD", "--json", "r.json", *given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["kind"], result["first_bad"]) == ("git", git("rev-parse", "HEAD~2").strip())
    assert "number 3 (Ada" in done.stdout
    assert "not committed are in no probe: train.py" in done.stderr
    assert (tmp_path / "train.py").read_text() == "this is not committed"
    assert len(git("worktree", "list").splitlines()) == 1
    assert {where["file"] for where in result["finding"]["where"]} == {"train.py"}


@pytest.mark.full
@on_real_ranks
def test_an_interrupted_search_continues(tmp_path, bisect):
    write(tmp_path)
    given = [*FORK, "train.py", "--num-workers", "4", "--evaluate"]
    with subprocess.Popen(
        [*DDPNB, "bisect", *given], cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stderr is not None
            while not (line := process.stderr.readline()).startswith("ddpnb: probe 1"):
                assert line
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            rest = process.stderr.read()
            assert process.wait(30) == 130, rest
        finally:
            process.kill()
    assert "continue with: ddpnb bisect --resume ddpnb-bisect.json" in rest
    assert not left(tmp_path)
    done = bisect("--resume", "ddpnb-bisect.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "continues after" in done.stderr
    assert "--num-workers=4 and --evaluate together" in done.stdout
    assert not left(tmp_path)


def test_a_ladder(tmp_path, bisect):
    write(tmp_path)
    given = ("train.py", "--num-workers", "4", "--evaluate")
    done = bisect(*FORK, "--ladder", "--json", "r.json", *given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [one["name"] for one in json.loads((tmp_path / "r.json").read_text())["minimal"]] == [
        "-n", "--num-workers", "--evaluate",
    ]  # fmt: skip
    assert "rung 1, a single process: works" in done.stderr
    assert "rung 3, data workers: works" in done.stderr


@pytest.mark.full
@on_real_ranks
def test_the_first_step_at_which_replicas_differ(tmp_path, bisect):
    given = (APART, "4", "6")
    done = bisect(*FORK, "--by", "steps", "--json", "r.json", *given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "differ first at optimizer step 4, after its update" in done.stdout
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["kind"], result["first_bad"], result["last_good"], result["pair"]) == ("range", 4, 3, [0, 1])
    assert os.listdir(tmp_path) == ["r.json"]


@on_real_ranks
@pytest.mark.full
def test_the_first_step_of_a_launch_command(tmp_path, bisect):
    given = (APART, "4", "6")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *given]
    done = bisect("--by", "steps", "--", *torchrun, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "optimizer step 4, after its update" in done.stdout and "ddpnb run --end-after-patience -- " in done.stdout


def test_the_smallest_number_of_ranks(tmp_path, bisect):
    (tmp_path / "train.py").write_text(
        "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "if dist.get_rank() != 1:\n    dist.all_reduce(torch.ones(2))\n"
    )
    done = bisect("-n", 3, "--fork", "--range", "nproc=1..3", "--json", "r.json", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["kind"], result["first_bad"], result["last_good"]) == ("range", 2, 1)
    assert "It fails from -n 2 on; 1 works." in done.stdout and "ddpnb run -n 2 " in done.stdout


def test_a_command_that_works(tmp_path, bisect):
    write(tmp_path)
    done = bisect(*FORK, "train.py", "--amp", cwd=tmp_path)
    assert done.returncode == 1
    assert "Nothing fails" in done.stdout
    assert os.listdir(tmp_path) == ["train.py"]


def test_a_cause_that_is_not_varied(tmp_path, bisect):
    write(tmp_path)
    given = ("train.py", "--amp", "--num-workers", "4", "--evaluate")
    done = bisect(*FORK, "--vary", "amp", "--json", "r.json", *given, cwd=tmp_path)
    assert done.returncode == 5
    assert "the cause lies elsewhere" in done.stdout
    assert json.loads((tmp_path / "r.json").read_text())["outcome"] == "always fails"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "no command given"),
        (["nowhere.py", "--amp"], "does not exist"),
        (["train.py"], "no options to vary"),
        (["--vary", "momentum", "train.py", "--amp"], "no option --momentum"),
        (["--vary", "workers=1", "train.py"], "harmless and a failing value"),
        (["--range", "workers=4", "train.py"], "two whole numbers"),
        (["--git", "a..b", "train.py"], "git"),
        (["--repeat", "0", "train.py", "--amp"], "--repeat"),
        (["--confidence", "2", "train.py", "--amp"], "confidence"),
        (["--resume", "train.py"], "not the log of a search"),
        (["--resume", "nowhere.json"], "cannot read"),
        (["-n", "2", "--", "python", "train.py", "--amp"], "go with a script"),
        (["--json", "no/such/folder.json", "train.py", "--amp"], "cannot write"),
        (["--", "no-such-program", "--amp"], "cannot run"),
        (["--by", "steps", "--", "no-such-program"], "cannot run"),
        (["--by", "days", "train.py"], "invalid choice"),
        (["--by", "steps", "--range", "n=1..4", "train.py"], "no other search"),
        (["--vary", "nproc=1|4", "--", "python", "train.py"], "does not say how many ranks"),
        (["--by", "steps", "--vary", "amp", "train.py", "--amp"], "no other search"),
        (["--by", "steps", "--log", "l.json", "train.py"], "no other search"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(tmp_path, monkeypatch, capsys, args, said):
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    assert refused("bisect", *args) == 2
    told = capsys.readouterr().err
    assert said in told and "Traceback" not in told
