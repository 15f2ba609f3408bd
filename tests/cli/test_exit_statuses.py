"""Each way in which ranks can end, against what they give without ddpnb: exit status, and what is said of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product

import pytest

from tests.cli.jobs import TORCHRUN, run

full = pytest.mark.full

_ENDS = """\
import atexit, os, signal, sys, threading
import torch
import torch.distributed as dist

class Own(SystemExit): pass

def end():
    {code}

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
if sys.argv[1] == "all":
    dist.destroy_process_group()
    end()
elif dist.get_rank() == 1:
    end()
else:
    dist.all_reduce(torch.ones(1))
"""
_JOINS = """\
import sys, torch, torch.distributed as dist, torch.multiprocessing as mp

def work(rank, port, release):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    dist.all_reduce(torch.ones(1))
    if rank == 0:
        release.wait()

if __name__ == "__main__":
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = mp.get_context("fork")
    release = context.Event()
    ranks = [context.Process(target=work, args=(rank, port, release)) for rank in range(2)]
    [rank.start() for rank in ranks]
    ranks[1].join()
    release.set()
    ranks[0].join()
    print("joined", [rank.exitcode for rank in ranks])
"""
# The second attempt makes no group: torch 2.13 may read the addresses of the first one there.
_RESTARTS = """\
import os, sys, torch, torch.distributed as dist
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    if dist.get_rank() == 1:
        {code}
    dist.all_reduce(torch.ones(1))
print("finished in attempt", os.environ["TORCHELASTIC_RESTART_COUNT"])
"""
_WORKS = """\
import time, torch, torch.distributed as dist
from datetime import timedelta

dist.init_process_group("gloo", timeout=timedelta(seconds=4))
end = time.monotonic() + 60
while dist.get_rank() == 1 and time.monotonic() < end:
    sum(range(10000))
dist.all_reduce(torch.ones(1))
"""
_FILLS = """\
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    file = open("/dev/shm/filler", "wb", buffering=0)
    try:
        while file.write(bytes(1 << 16)):
            pass
    except OSError:
        pass
for _ in range(100):
    dist.all_reduce(torch.ones(1))
print("done", flush=True)
"""


def ends(job, code):
    (job / "ends.py").write_text(_ENDS.format(code=code))


@pytest.mark.parametrize(
    ("who", "code", "status", "codes", "says"),
    [
        ("all", "raise SystemExit(3)", 3, {"0": 3, "1": 3}, "exited with status 3"),
        ("one", "raise SystemExit(1)", 1, {"0": 1, "1": 1}, "Rank 1 exited with status 1; rank 0 waits for it."),
        *(
            pytest.param(*row, marks=full)
            for row in [
                ("all", "raise SystemExit('bad')", 1, {"0": 1, "1": 1}, "exited with status 1"),
                ("all", "sys.exit(256)", 0, {"0": 0, "1": 0}, "status 0 although the code was 256"),
                ("all", "os._exit(5)", 5, {"0": 5, "1": 5}, "exited with status 5"),
                ("all", "atexit.register(os._exit, 6)", 6, {"0": 6, "1": 6}, "exited with status 6"),
                ("all", "os.execv('/bin/sh', ['sh', '-c', 'exit 9'])", 9, {"0": 9, "1": 9}, "exited with status 9"),
                ("one", "sys.exit(-1)", 255, {"0": 1, "1": 255}, "Rank 1 called sys.exit(-1); rank 0 waits for it."),
                ("one", "raise Own('bad')", 1, {"0": 1, "1": 1}, "Rank 1 exited with status 1; rank 0 waits for it."),
                ("one", "os.kill(os.getpid(), signal.SIGSEGV)", 139, {"0": 1, "1": -11}, "SIGSEGV"),
            ]
        ),
    ],
)
def test_ranks_of_a_script(who, code, status, codes, says, job, cli):
    ends(job, code)
    done = cli("run", "-n", 2, "--fork", "--json", "v.json", "ends.py", who, cwd=job)
    assert (done.returncode, says in done.stderr) == (status, True), done.stderr
    verdict = json.loads((job / "v.json").read_text())
    assert verdict["exit_codes"] == codes
    assert verdict["outcome"] == ("crash" if status else "ok")


@full
@pytest.mark.parametrize(
    ("who", "code"),
    [
        *product(
            ("all", "one"), ("raise SystemExit(3)", "raise SystemExit('bad')", "sys.exit(-1)", "os._exit(7)", "os.abort()")
        ),
        ("all", "sys.exit(256)"),
        ("all", "raise Own(None)"),
        ("all", "threading.Thread(target=sys.exit, args=(3,)).start()"),
        ("all", "atexit.register(os._exit, 6)"),
        ("all", "os.execv('/bin/sh', ['sh', '-c', 'exit 9'])"),
    ],
)  # fmt: skip
def test_ranks_of_torchrun(who, code, job, cli):
    ends(job, code)
    command = [*TORCHRUN, "ends.py", who]
    plain = subprocess.run(command, cwd=job, capture_output=True, check=False)
    done, verdict = run(cli, job, *command)
    assert done.returncode == plain.returncode, done.stderr
    assert verdict["outcome"] == ("crash" if plain.returncode else "ok")


@pytest.mark.full
def test_a_parent_that_waits_for_one_rank_before_it_releases_another(job, cli):
    (job / "joins.py").write_text(_JOINS)
    done, verdict = run(cli, job, sys.executable, "joins.py")
    assert (done.returncode, done.stdout, verdict["outcome"], verdict["findings"]) == (0, "joined [0, 0]\n", "ok", [])


@full
def test_a_rank_that_torchrun_ends_after_the_time_out_of_another_is_not_blamed(job, cli):
    (job / "works.py").write_text(_WORKS)
    done, verdict = run(cli, job, *TORCHRUN, "works.py")
    assert (done.returncode, verdict["outcome"], verdict["exit_codes"]["1"]) == (1, "crash", -15), done.stderr
    assert [finding["code"] for finding in verdict["findings"]] == ["DDP317"], done.stderr


@full
@pytest.mark.parametrize("code", ["sys.exit(1)", "raise SystemExit(1)"])
def test_torchrun_restarts_the_ranks_of_which_one_has_failed(code, job, cli):
    (job / "restarts.py").write_text(_RESTARTS.format(code=code))
    done = cli("run", "--", *TORCHRUN, "--max-restarts", "1", "restarts.py", cwd=job)
    assert (done.returncode, done.stdout) == (0, "finished in attempt 1\n" * 2), done.stderr


@full
@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")
@pytest.mark.parametrize("how", [["-n", "2"], ["-n", "2", "--fork"], ["--", *TORCHRUN]], ids=["n", "fork", "torchrun"])
def test_a_training_that_ends_while_shared_memory_is_full(how, job):
    (job / "fills.py").write_text(_FILLS)
    command = [sys.executable, "-m", "ddpnb", "run", *how, "fills.py"]
    steps = 'mount -t tmpfs -o size=400m none /dev/shm && exec "$@"'
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", steps, "bash", *command], cwd=job, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.count("done")) == (0, 2), done.stderr
    assert "DDP" not in done.stderr
