"""Jobs whose ranks ddpnb does not start: by torchrun, by torch.multiprocessing."""

from __future__ import annotations

import json
import sys
import time

import psutil

from ddpnb.ranks.jobs.search import all_jobs
from tests.cli.commands import assert_no_own_frames

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
_STEPS = """
import sys, time, torch, torch.distributed as dist

def train(mode):
    rank = dist.get_rank()
    for step in range(100_000 if mode == "long" else 5):
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
        if mode == "long":
            time.sleep(0.005)
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
    if mode == "absent" and rank == 1:
        time.sleep(5)  # the other one has joined by then
        {}["shard"]
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    train(mode)

if __name__ == "__main__":
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.start_processes(work, (sys.argv[1], port), 2, start_method=sys.argv[2])
"""
_STARTS = """
import os, signal, socket, subprocess, sys

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
ranks = [subprocess.Popen([sys.executable, *sys.argv[1:]], env=os.environ | world | {"RANK": str(rank)}) for rank in (0, 1)]
signal.signal(signal.SIGTERM, lambda *_: [rank.kill() for rank in ranks])
sys.exit(max(rank.wait() for rank in ranks))
"""
STARTS = [sys.executable, "starts.py"]  # a launcher without torch, as mpiexec


def spawn(mode, method="fork"):
    """The command of a job of two ranks that starts them by ``mp.start_processes``; ``fork`` is the fastest way."""
    return [sys.executable, "spawn.py", mode, method]


def write(folder):
    """Write the programs into this folder, which it returns."""
    (folder / "steps.py").write_text(_STEPS)
    (folder / "train.py").write_text(_TORCHRUN)
    (folder / "spawn.py").write_text(_SPAWN)
    (folder / "starts.py").write_text(_STARTS)
    return folder


def run(cli, job, *command, options=()):
    """Run the command of a job to its end; what it printed, and the diagnosis as JSON."""
    done = cli("run", *options, "--json", "v.json", "--", *command, cwd=job)
    path = job / "v.json"
    assert_no_own_frames(done.stderr)
    return done, json.loads(path.read_text()) if path.exists() else None


def wait_for_job(process, ranks=frozenset({0, 1})):
    """The job below this process, once these ranks are there."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        below = {child.pid for child in psutil.Process(process.pid).children(recursive=True)}
        for found in all_jobs():
            if ranks <= found.ranks.keys() and below >= {*found.ranks.values()}:
                return found
        time.sleep(0.1)
    process.kill()  # else its output has no end
    raise AssertionError(process.stderr.read())


def end(process):
    """End what a failed test has left running."""
    if process.poll() is None:
        process.terminate()
        process.communicate(timeout=240)
