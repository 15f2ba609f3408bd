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
def test_what_a_process_raised_before_it_joined(job, cli):
    """It was no rank yet; the one that waited for it is ended by ``mp.start_processes``."""
    done, verdict = run(cli, job, *spawn("absent"))
    finding = verdict["findings"][0]  # the next one is of the rank that was ended
    assert (finding["code"], finding["culprits"], finding["certainty"]) == ("DDP312", [1], "likely")
    assert "KeyError: 'shard'" in finding["summary"]
    assert (done.returncode, verdict["outcome"], verdict["exit_codes"]["1"]) == (1, "crash", 1)


ALONE = """
import os, sys, torch.distributed as dist, torch.multiprocessing as mp

def work(rank):
    if rank:
        {}["shard"]
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=2)

ranks = [mp.get_context("fork").Process(target=work, args=(rank,)) for rank in range(int(sys.argv[1]))]
for rank in ranks:
    rank.start()
for rank in ranks:
    rank.join()
"""


@pytest.mark.full
@pytest.mark.parametrize(("started", "why"), [(1, "no process of it was seen"), (2, "failed at alone.py:6")])
def test_a_rank_that_never_joins(job, cli, started, why):
    (job / "alone.py").write_text(ALONE)
    command = (sys.executable, "alone.py", str(started))
    done, verdict = run(cli, job, *command, options=("--patience", "2", "--end-after-patience"))
    (finding,) = verdict["findings"]
    assert (done.returncode, finding["code"], finding["culprits"], finding["waiting"]) == (3, "DDP102", [1], [0])
    assert why in finding["summary"] and (started == 1 or finding["remedy"] == "Start with the KeyError.")


@pytest.mark.full
def test_a_rank_that_imports_for_long_is_awaited(job, cli):
    """It is no rank before it has imported torch: its process may become one, so the others do not wait in vain."""
    (job / "slow.py").write_text(
        "import os, time\ntime.sleep(12 * int(os.environ['RANK']))\nimport torch.distributed as dist\n"
        "dist.init_process_group('gloo')\ndist.barrier()\ndist.destroy_process_group()\n"
    )
    done, verdict = run(cli, job, *TORCHRUN, "slow.py", options=("--patience", "2", "--end-after-patience"))
    assert (done.returncode, verdict["outcome"], verdict["findings"]) == (0, "ok", [])


@pytest.mark.full
def test_a_job_that_hangs(job):
    process = begin("run", "--json", "v.json", "--save", "hang.ddpnb", "--", *TORCHRUN, "train.py", "skip", cwd=job)
    _, said = process.communicate(timeout=240)
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
    outputs = [process.communicate(timeout=240)[0] for process in processes]
    assert [process.returncode for process in processes] == [3, 0]
    assert_names_the_rank_that_skips(job / "skip.json")
    well = json.loads((job / "well.json").read_text())
    assert (well["outcome"], well["findings"], well["exit_codes"]) == ("ok", [], {"0": 0, "1": 0})
    assert [output.count("total") for output in outputs] == [1, 2]
    assert [left_by(process) for process in processes] == [[], []]


@pytest.mark.full
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_rank_that_raises(job, cli, method):
    done, verdict = run(cli, job, *spawn("raise", method))
    assert (done.returncode, verdict["outcome"]) == (1, "crash")
    finding = verdict["findings"][0]
    assert (finding["code"], finding["culprits"]) == ("DDP312", [1])
    assert "ValueError: a bad record" in finding["summary"]


_ALONE = """
import sys, torch, torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

if sys.argv[1] == "fake":  # a dry run
    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
else:  # the others would run on other hosts, or are started by hand
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
dist.all_reduce(torch.ones(4))
sys.exit(int(sys.argv[2]))
"""
_THREADS = """
import threading, torch, torch.distributed as dist
from torch.testing._internal.distributed.multi_threaded_pg import _install_threaded_pg

torch._C._distributed_c10d._set_thread_isolation_mode(True)
_install_threaded_pg()
store = dist.HashStore()

def rank(number):
    dist.init_process_group("threaded", rank=number, world_size=2, store=store)
    total = torch.ones(2) * number
    dist.all_reduce(total)
    print("total", total[0].item(), flush=True)
    dist.destroy_process_group()

threads = [threading.Thread(target=rank, args=(number,)) for number in (0, 1)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("program", "args", "status"),
    [
        pytest.param(_ALONE, ("fake", 0), 0, id="fake"),
        pytest.param(_ALONE, ("fake", 5), 5, marks=pytest.mark.full, id="fake-fails"),
        pytest.param(_THREADS, (), 0, marks=pytest.mark.full, id="threads"),
    ],
)
def test_more_ranks_than_processes(job, cli, program, args, status):
    """Once the command has ended, ranks that never came are not waited for."""
    (job / "alone.py").write_text(program)
    done, verdict = run(cli, job, sys.executable, "alone.py", *args)
    assert done.returncode == status
    assert (verdict["outcome"], verdict["settled"]) == ("crash" if status else "ok", True)
    assert [one for one in verdict["findings"] if one["severity"] == "error"] == (
        [] if not status else verdict["findings"]
    )


@pytest.mark.full
def test_fewer_ranks_than_the_world_has(job, cli):
    """Rank 1 is started by torchrun, and ends before it makes a group."""
    (job / "one.py").write_text(
        "import os, sys, torch, torch.distributed as dist\n"
        "if os.environ['RANK'] == '1': sys.exit(0)\n"
        "dist.init_process_group('gloo', rank=0, world_size=1, init_method='tcp://127.0.0.1:0')\n"
    )
    done, verdict = run(cli, job, *TORCHRUN, "one.py")
    assert (done.returncode, verdict["outcome"]) == (0, "ok")


_PARENT = """
import os, sys, time, torch, torch.distributed as dist, torch.multiprocessing as mp

def work(rank, results, how, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    total = torch.ones(1)
    dist.all_reduce(total)
    results.put(total.item())
    if how == "exit1":
        results.close()
        results.join_thread()
        os._exit(1)
    time.sleep(1000)  # an actor that waits for its next task

if __name__ == "__main__":
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context, how = mp.get_context("fork"), sys.argv[1]
    results = context.Queue()
    ranks = [context.Process(target=work, args=(rank, results, how, port)) for rank in range(2)]
    [rank.start() for rank in ranks]
    print("results", results.get(), results.get(), flush=True)
    if how != "exit1":
        [getattr(rank, how)() for rank in ranks]
    [rank.join() for rank in ranks]
    sys.exit(int(sys.argv[2]))
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("kill", 0),
        pytest.param("terminate", 0, marks=pytest.mark.full),
        pytest.param("exit1", 0, marks=pytest.mark.full),
        pytest.param("terminate", 6, marks=pytest.mark.full),
        pytest.param("exit1", 6, marks=pytest.mark.full),
    ],
)
def test_ranks_that_their_parent_ends(job, cli, how, status):
    """As Ray does once it has their results: the command decides whether that is a failure."""
    (job / "parent.py").write_text(_PARENT)
    done, verdict = run(cli, job, sys.executable, "parent.py", how, status)
    assert (done.returncode, verdict["outcome"], done.stdout) == (
        status,
        "crash" if status else "ok",
        "results 2.0 2.0\n",
    )
    severities = [one["severity"] for one in verdict["findings"]]
    assert severities == {("exit1", 0): ["note"]}.get((how, status), ["error"] if status else [])
    assert "OOM" not in done.stderr
    assert ("may have sent the signal" in done.stderr) == bool(status and how != "exit1")


@pytest.mark.full
@pytest.mark.parametrize(("first", "second", "status"), [("raise", "well", 0), ("raise", "kill", 1)])
def test_an_attempt_that_fails_before_another(job, cli, first, second, status):
    """The status and the outcome are those of the last one; that the first one failed, and why, is a note."""
    commands = [" ".join(spawn(mode)) for mode in (first, second)]
    done, verdict = run(cli, job, "bash", "-c", " || ".join(commands))
    assert (done.returncode, verdict["outcome"]) == (status, "crash" if status else "ok")
    *errors, note = verdict["findings"]
    assert (note["code"], note["severity"], note["culprits"]) == ("DDP312", "note", [1])
    assert note["summary"].startswith("Attempt 1 failed") and "ValueError: a bad record" in note["summary"]
    assert {one["code"] for one in errors if one["severity"] == "error"} == ({"DDP311"} if status else set())


@pytest.mark.full
def test_the_last_attempt_is_not_the_one_that_failed(job, cli):
    done, verdict = run(cli, job, "bash", "-c", f"{' '.join(spawn('raise'))}; {' '.join(spawn('well'))}; exit 7")
    finding = verdict["findings"][0]
    assert (done.returncode, verdict["outcome"]) == (7, "crash")
    assert (finding["code"], finding["severity"]) == ("DDP312", "error")


_AGAIN_BY_TORCHRUN = """
import os
from steps import *

attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], int(os.environ["RANK"])
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 2, False)
# torchrun has one store for all attempts: in it, ranks may find the addresses of those before.
dist.init_process_group("gloo", store=dist.PrefixStore(attempt, store), rank=rank, world_size=2)
train(sys.argv[1] if attempt == "0" else "well")
"""


@pytest.mark.full
@pytest.mark.parametrize("mode", ["raise", "kill"])
def test_torchrun_starts_the_ranks_again(job, cli, mode):
    (job / "again.py").write_text(_AGAIN_BY_TORCHRUN)
    done, verdict = run(cli, job, *TORCHRUN, "--max-restarts", "2", "again.py", mode)
    assert (done.returncode, verdict["outcome"], done.stdout.count("total")) == (0, "ok", 2)
    note = verdict["findings"][0]
    assert (note["severity"], note["culprits"]) == ("note", [1]) and "Attempt 1" in note["summary"]


LAUNCHERS = [
    pytest.param([*TORCHRUN, "train.py"], marks=pytest.mark.full, id="torchrun"),
    pytest.param(spawn("")[:2], id="spawn"),
]


@pytest.mark.full
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
    says if "replaced" in says else pytest.param(says, marks=pytest.mark.full) for says in UNREACHABLE
])  # fmt: skip
def test_processes_that_the_recorder_cannot_reach(job, cli, says):
    (job / "alone.py").write_text("import time; time.sleep(3); print('ran')\n")
    done = cli("run", "--", sys.executable, *UNREACHABLE[says], "alone.py", cwd=job)
    assert (done.returncode, done.stdout, done.stderr.count(says)) == (0, "ran\n", 1), done.stderr


@pytest.mark.full
def test_a_command_that_replaces_itself(job, cli):
    _, verdict = run(cli, job, sys.executable, "-c", f"import os, sys; {_AGAIN}", *spawn("skip")[1:])
    assert verdict["findings"][0]["code"] == "DDP301"


@pytest.mark.full
def test_ranks_that_outlive_their_command(job, cli):
    """A launcher that puts its job into the background: the job is watched all the same."""
    done, verdict = run(cli, job, "bash", "-c", f"{' '.join(spawn('skip'))} >log 2>&1 & exit 0")
    assert (done.returncode, verdict["findings"][0]["code"]) == (3, "DDP301")


@pytest.mark.full
def test_two_jobs_one_after_the_other(job, cli):
    done, verdict = run(cli, job, "bash", "-c", f"{' '.join(spawn('well'))} && {' '.join(spawn('skip'))}")
    assert (done.returncode, verdict["findings"][0]["code"], verdict["world_size"]) == (3, "DDP301", 2)
    assert done.stdout.count("total") == 3


@pytest.mark.full
def test_interrupted(job):
    process = begin("run", "--patience", "300", "--json", "v.json", "--", *spawn("sleep"), cwd=job)
    found = wait_for_job(process)
    process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)  # people press it again
    _, said = process.communicate(timeout=240)
    assert process.returncode in (130, -signal.SIGINT)
    assert_no_own_frames(said)
    assert json.loads((job / "v.json").read_text())["outcome"] == "interrupted"
    assert_all_ended(process, list(found.ranks.values()))


def test_interrupted_before_there_is_a_process_group(tmp_path):
    code = "import pathlib, time; pathlib.Path('begun').touch(); time.sleep(60)"
    process = begin("run", "--json", "v.json", "--", sys.executable, "-c", code, cwd=tmp_path)
    try:
        deadline = time.monotonic() + 240
        while not (tmp_path / "begun").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 130
    assert json.loads((tmp_path / "v.json").read_text())["outcome"] == "interrupted"
    assert_no_own_frames(said)
    assert said.count("Traceback") == 1 and "KeyboardInterrupt" in said  # of the program, as without ddpnb
