"""``ddpnb run -- COMMAND``: whatever starts the ranks, as a stranger types it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

import ddpnb as package
from ddpnb.errors import UsageError, WorldError
from ddpnb.processes.jobs.search import all_jobs
from tests.cli.test_run import assert_all_ended, begin, ddpnb, left_by

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
_STEPS = """
import sys, time, torch, torch.distributed as dist

def train(mode):
    rank = dist.get_rank()
    for step in range(5):
        if step == 3 and rank == 1 and mode == "skip":
            continue
        if step == 3 and rank == 1 and mode == "raise":
            raise ValueError("a bad record")
        if step == 3 and rank == 1 and mode == "kill":
            import os, signal
            os.kill(os.getpid(), signal.SIGKILL)
        if step == 3 and rank == 1 and mode == "sleep":
            time.sleep(600)
        total = torch.ones(4)
        dist.all_reduce(total)
    sys.stdout.write(f"total {rank} {total.sum().item()}\\n")
    sys.stdout.flush()
    if mode != "skip":  # a script that forgets it: rank 0 then waits without end
        dist.destroy_process_group()
"""
_TORCHRUN = "from steps import *\ndist.init_process_group('gloo')\ntrain(sys.argv[1])\n"
_SPAWN = """
from steps import *
import os, torch.multiprocessing as mp

def work(rank, mode, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    train(mode)

if __name__ == "__main__":
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.start_processes(work, (sys.argv[1], port), 2, start_method=sys.argv[2])
"""


@pytest.fixture
def job(tmp_path):
    (tmp_path / "steps.py").write_text(_STEPS)
    (tmp_path / "train.py").write_text(_TORCHRUN)
    (tmp_path / "spawn.py").write_text(_SPAWN)
    return tmp_path


def run(job, *command, options=(), **more):
    done = ddpnb("run", *options, "--json", "v.json", "--", *command, cwd=job, timeout=100, **more)
    path = job / "v.json"
    assert "ddpnb/" not in done.stderr.replace(str(job), ""), done.stderr
    return done, json.loads(path.read_text()) if path.exists() else None


@pytest.mark.parametrize(
    "command",
    [
        [*TORCHRUN, "train.py", "well"],
        [sys.executable, "spawn.py", "well", "spawn"],
        [sys.executable, "spawn.py", "well", "fork"],
    ],
    ids=["torchrun", "mp.spawn", "mp fork"],
)
def test_a_healthy_job(command, job):
    done, verdict = run(job, *command)
    assert (done.returncode, verdict["outcome"], verdict["findings"], verdict["world_size"]) == (0, "ok", [], 2)
    assert verdict["exit_codes"] == {"0": 0, "1": 0}
    assert sorted(re.findall("total . 8.0", done.stdout)) == ["total 0 8.0", "total 1 8.0"]


@pytest.mark.parametrize(
    "command",
    [[*TORCHRUN, "train.py", "skip"], [sys.executable, "spawn.py", "skip", "spawn"]],
    ids=["torchrun", "mp.spawn"],
)
def test_a_job_that_hangs(command, job):
    process = begin("run", "--json", "v.json", "--save", "hang.ddpnb", "--", *command, cwd=job)
    _, said = process.communicate(timeout=100)
    verdict = json.loads((job / "v.json").read_text())
    assert (process.returncode, verdict["outcome"]) == (3, "hang"), said
    (finding,) = verdict["findings"]
    assert (finding["code"], finding["culprits"], finding["waiting"]) == ("DDP301", [1], [0])
    assert {os.path.basename(place["file"]) for place in finding["where"]} == {"steps.py"}
    assert package.diagnose(package.load(job / "hang.ddpnb")).findings[0].code == "DDP301"
    assert_all_ended(process, [])
    assert said.rfind("DDP301") > said.rfind("Traceback")  # what the launcher says of its end comes first


def test_a_rank_that_raises(job):
    done, verdict = run(job, sys.executable, "spawn.py", "raise", "spawn")
    assert (done.returncode, verdict["outcome"]) == (1, "crash")
    finding = verdict["findings"][0]
    assert (finding["code"], finding["culprits"]) == ("DDP312", [1])
    assert "ValueError: a bad record" in finding["summary"]


def test_a_rank_that_is_killed(job):
    done, verdict = run(job, *TORCHRUN, "train.py", "kill")
    assert (done.returncode, verdict["outcome"]) == (1, "crash")
    assert (verdict["findings"][0]["code"], verdict["findings"][0]["culprits"]) == ("DDP311", [1])
    assert verdict["exit_codes"]["1"] in (-signal.SIGKILL, None)


def test_the_status_of_the_command(job):
    (job / "seven.py").write_text("import sys; sys.exit(7)\n")
    done, verdict = run(job, sys.executable, "seven.py")
    assert (done.returncode, verdict["outcome"], verdict["findings"]) == (7, "crash", [])
    assert "no process of this command has initialised a process group: nothing was checked" in done.stderr


def test_a_command_without_ranks(job):
    done, verdict = run(job, "echo", "hello")
    assert (done.returncode, done.stdout, verdict["outcome"]) == (0, "hello\n", "ok")
    assert "nothing was checked" in done.stderr


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
        (["attach", "no-such-folder"], "is not a folder"),
        (["attach", "."], "no rank of . runs"),
        (["attach", "99999999"], "there is no process 99999999"),
    ],
)
def test_wrong_use(args, says, tmp_path):
    done = ddpnb(*args, cwd=tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert says in done.stderr


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (["-I"], "python -I ignores PYTHONPATH"),
        (["-S"], "python -S ignores PYTHONPATH"),
        (["-c", "import os, sys; os.execve(sys.executable, [sys.executable, *sys.argv[1:]], {'PATH': '/bin'})"], "has been rewritten"),
        (["-c", "import os, sys; os.environ['PYTHONPATH'] = '.'; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"],
         "PYTHONPATH has been replaced"),
    ],
    ids=["-I", "-S", "environment", "PYTHONPATH"],
)  # fmt: skip
def test_a_process_that_the_recorder_cannot_reach(change, says, job):
    (job / "alone.py").write_text("import time; time.sleep(3); print('ran')\n")
    done, _ = run(job, sys.executable, *change, "alone.py")
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert says in done.stderr
    assert done.stderr.count(says) == 1


def test_a_command_that_replaces_itself(job):
    code = "import os, sys; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    _, verdict = run(job, sys.executable, "-c", code, "spawn.py", "skip", "spawn")
    assert verdict["findings"][0]["code"] == "DDP301"


def test_ranks_that_outlive_their_command(job):
    """A launcher that puts its job into the background: the job is watched all the same."""
    command = f"{sys.executable} spawn.py skip spawn >log 2>&1 & exit 0"
    done, verdict = run(job, "bash", "-c", command)
    assert (done.returncode, verdict["findings"][0]["code"]) == (3, "DDP301")


def test_two_jobs_one_after_the_other(job):
    done, verdict = run(
        job, "bash", "-c", f"{sys.executable} spawn.py well spawn && {sys.executable} spawn.py skip spawn"
    )
    assert (done.returncode, verdict["findings"][0]["code"], verdict["world_size"]) == (3, "DDP301", 2)
    assert done.stdout.count("total") == 3


def test_jobs_side_by_side_do_not_mix(job):
    processes = [
        begin("run", "--json", f"{mode}.json", "--", sys.executable, "spawn.py", mode, "spawn", cwd=job)
        for mode in ("skip", "well")
    ]
    for process in processes:
        process.communicate(timeout=100)
    assert [json.loads((job / f"{mode}.json").read_text())["outcome"] for mode in ("skip", "well")] == ["hang", "ok"]
    assert [left_by(process) for process in processes] == [[], []]


def wait_for_job(process, said=""):
    """The job below this process, once both ranks are there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        below = {child.pid for child in psutil.Process(process.pid).children(recursive=True)}
        for found in all_jobs():
            if len(found.ranks) == 2 and below >= {*found.ranks.values()}:
                return found
        time.sleep(0.1)
    raise AssertionError(said or process.stderr.read())


def end(process):
    if process.poll() is None:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted(number, status, job):
    process = begin("run", "--patience", "300", "--json", "v.json", "--", *TORCHRUN, "train.py", "sleep", cwd=job)
    found = wait_for_job(process)
    process.send_signal(number)
    time.sleep(0.1)
    if process.poll() is None:
        process.send_signal(number)  # people press it again
    _, said = process.communicate(timeout=60)
    assert process.returncode in (status, -number)
    assert "ddpnb/" not in said.replace(str(job), "")
    assert json.loads((job / "v.json").read_text())["outcome"] == "interrupted"
    assert_all_ended(process, list(found.ranks.values()))


def test_a_hung_job_is_kept_attached_to_and_released(job):
    process = begin("run", "--keep", "--", *TORCHRUN, "train.py", "skip", cwd=job)
    try:
        found = wait_for_job(process)
        with package.attach(process.pid) as attached:
            attached.run.wait(60)
            assert attached.diagnosis.outcome == "hang"
            assert (attached.size, attached.folder) == (2, found.folder)
            assert attached.status()[0].state == "waiting"
            assert attached.evaluate("step").values_by_rank[0] == 4
            assert attached.snapshot().ranks[0].main_stack.innermost_user.function == "train"
            with pytest.raises(WorldError, match="environment of a new start"):
                attached.inject("wrong port", ranks=1)
            assert attached.release().ranks == (0,)
        _, said = process.communicate(timeout=60)
    finally:
        end(process)
    assert process.returncode == 3
    assert f'ddpnb.attach("{found.folder}")' in said
    assert "ddpnb: released by job.release()." in said
    assert_all_ended(process, list(found.ranks.values()))


def test_a_running_job_is_held_and_stepped(job):
    (job / "long.py").write_text(
        "from steps import *\ndist.init_process_group('gloo')\n"
        "for step in range(100_000): dist.all_reduce(torch.ones(4)); time.sleep(0.005)\n"
    )
    process = begin("run", "--", *TORCHRUN, "long.py", cwd=job)
    try:
        found = wait_for_job(process)
        with package.attach(found) as attached:
            attached.hold()
            deadline = time.monotonic() + 30
            while attached.status().held != (0, 1) and time.monotonic() < deadline:
                time.sleep(0.05)
            before = attached.evaluate("step").values_by_rank
            attached.step(3)
            after = attached.evaluate("step").values_by_rank
            assert {rank: after[rank] - before[rank] for rank in (0, 1)} == {0: 3, 1: 3}
            attached.resume()
            assert "running" in repr(attached)
    finally:
        end(process)
    assert_all_ended(process, list(found.ranks.values()))


def test_attach_lists_the_jobs_and_shows_one(job):
    process = begin("run", "--keep", "--", *TORCHRUN, "train.py", "skip", cwd=job)
    try:
        found = wait_for_job(process)
        listed = ddpnb("attach")
        assert found.folder in listed.stdout
        shown = ddpnb("attach", "--stacks", "--json", "a.json", found.folder, cwd=job)
        assert (shown.returncode, "steps.py" in shown.stdout) == (3, True)
        assert json.loads((job / "a.json").read_text())["findings"][0]["code"] == "DDP301"
        released = ddpnb("attach", "--release", found.ranks[0])
        assert "Rank 0 is released" in released.stdout
        process.communicate(timeout=60)
    finally:
        end(process)
    assert_all_ended(process, list(found.ranks.values()))


@pytest.mark.parametrize("target", [True, 1.5, None, [1]])
def test_attach_takes_a_folder_or_a_process(target):
    with pytest.raises(UsageError, match="takes a folder or a process ID"):
        package.attach(target)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_a_process_of_another_user_is_refused(job):
    """Root may read it; another user may not, which this one plays."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        try:
            code = f"import os, ddpnb; attach = ddpnb.attach; os.setgid(65534); os.setuid(65534); attach({other.pid})"
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        finally:
            other.kill()
    assert f"process {other.pid} belongs to another user" in done.stderr


def test_a_script_that_starts_its_own_ranks(job):
    """They are found below the ranks of the script, which itself makes no group."""
    done = ddpnb("run", "-n", 1, job / "spawn.py", "well", "spawn", cwd=job)
    assert (done.returncode, done.stdout.count("total")) == (0, 2)


@pytest.mark.parametrize(
    "options", [["-n", "2"], ["--nproc-per-node", "2"], ["--nproc_per_node=2", "--standalone"], ["-n", "2", "--fork"]]
)
def test_torchruns_spellings(options, job):
    done = ddpnb("run", *options, "-m", "train", "well", cwd=job)
    assert (done.returncode, done.stderr, done.stdout.count("total")) == (0, "", 2)


def test_the_port_of_the_store(job):
    (job / "port.py").write_text("import os; print('port', os.environ['MASTER_PORT'])\n")
    done = ddpnb("run", "-n", 1, "--master_port", "29777", "port.py", cwd=job)
    assert "port 29777" in done.stdout


def test_nothing_says_notebook(job):
    (job / "plain.py").write_text(
        "import builtins, os, sys\n"
        "told = [hasattr(sys, 'ps1'), hasattr(builtins, 'get_ipython'), hasattr(builtins, '__IPYTHON__'), 'IPython' in sys.modules,"
        " type(sys.stdout).__name__, [name for name in os.environ if name.startswith(('JPY', 'IPP', 'MPLBACKEND'))], __name__, sys.argv[1:]]\n"
        "print(told)\n"
    )
    done = ddpnb("run", "-n", 1, "plain.py", "a", cwd=job)
    plain = subprocess.run(
        [sys.executable, "plain.py", "a"], cwd=job, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"[rank 0] {plain.stdout}"
