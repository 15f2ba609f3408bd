"""Ten kinds of hang, and what PyTorch's own means say of them: time-outs, ``monitored_barrier`` and DETAIL.

A process imports torch once and forks the ranks of each hang, with a short time-out of the process group. What a rank
raises first, and when, is what a user would see in the log; the time is counted from the end of the last rank's start-up.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import ranks

VICTIMS = Path(__file__).parents[1] / "tests" / "victims"
TIMEOUT_S = 3.0  # of the process group and of monitored_barrier, in the peers' runs
_AT_A_TIME = 3  # hangs: their ranks mostly wait


@dataclass(frozen=True)
class Kind:
    """A script that hangs: its file in ``tests/victims``, its case, and the ranks at fault among ``n``."""

    name: str
    file: str
    case: str
    culprits: Callable[[int], set[int]]
    proven: bool = True

    @property
    def path(self) -> str:
        return str(VICTIMS / self.file)


def _others(n: int) -> set[int]:
    return set(range(1, n))


KINDS = (
    Kind("a barrier on rank 0 alone", "missing.py", "barrier_on_zero", _others),
    Kind("a rank returns early", "missing.py", "early_return", lambda n: {1}),
    Kind("a rank skips one iteration", "missing.py", "continue_over", lambda n: {1}),
    Kind("the root skips a broadcast", "missing.py", "broadcast_skipped_by_root", lambda n: {0}),
    Kind("another dtype on one rank", "mismatch.py", "dtype", lambda n: {1}),
    Kind("two groups in crossed order", "groups.py", "crossed", lambda n: {0, 1}),
    Kind("two ranks receive first", "p2p.py", "both_receive", lambda n: {0, 1}),
    Kind("uneven iterations of DDP", "training.py", "uneven", _others),
    Kind("rank 0 alone evaluates with DDP", "training.py", "evaluate_on_zero", lambda n: {0}),
    Kind("a rank is blocked in a lock", "elsewhere.py", "lock", lambda n: {1}, proven=False),
)
PEERS = ("time-out", "monitored_barrier", "DETAIL")

PEER = """
import json, os, runpy, signal, socket, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import torch.optim, torch._dynamo  # what DDP and optimizers import when they are first used

timeout, at_a_time, given, folder = float(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4]
GUARDED = "all_reduce barrier broadcast reduce all_gather all_gather_object reduce_scatter gather scatter all_to_all".split()

def guard(function):
    def guarded(*args, **more):
        if not isinstance(more.get("group"), dist.ProcessGroup):
            dist.monitored_barrier(timeout=timedelta(seconds=timeout), wait_all_ranks=True)
        return function(*args, **more)
    return guarded

def rank_of(job, at):
    if job["peer"] == "DETAIL":
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        dist.set_debug_level_from_env()
    sys.argv = [job["path"], job["case"]]
    log = os.open(at + ".log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1); os.dup2(log, 2)
    plain, new_group = dist.init_process_group, dist.new_group
    def started(*args, **more):
        plain(*args, **{**more, "timeout": timedelta(seconds=timeout)})
        with open(at + ".began", "w") as file:
            file.write(str(time.time()))
        if job["peer"] == "monitored_barrier":
            for name in GUARDED:
                setattr(dist, name, guard(getattr(dist, name)))
            DistributedDataParallel.forward = guard(DistributedDataParallel.forward)
    dist.init_process_group = started
    dist.new_group = lambda *args, **more: new_group(*args, **{**more, "timeout": timedelta(seconds=timeout)})
    try:
        runpy.run_path(job["path"], run_name="__main__")
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"
        with open(at + ".part", "w") as file:
            json.dump({"at": time.time(), "text": text[:4000]}, file)
        os.rename(at + ".part", at + ".error")
        os._exit(1)
    os._exit(0)

def read(path):
    with open(path) as file:
        return file.read()

class Running:
    def __init__(self, number, job):
        self.job, self.n = job, job["n"]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = str(probe.getsockname()[1])
        self.at = [os.path.join(folder, f"{number}-{rank}") for rank in range(self.n)]
        self.killed, self.pids, self.ended, self.until = [], {}, {}, time.time() + timeout + 15
        for rank in range(self.n):
            pid = os.fork()
            if not pid:
                try:
                    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(self.n), MASTER_PORT=self.port, MASTER_ADDR="127.0.0.1")
                    rank_of(job, self.at[rank])
                finally:
                    os._exit(70)
            self.pids[pid] = rank

    def result(self):
        for pid, rank in self.pids.items():
            found, status = (0, 0) if pid in self.ended else os.waitpid(pid, os.WNOHANG)
            if found:
                self.ended[pid] = time.time()
                if os.WIFSIGNALED(status):
                    text = signal.strsignal(os.WTERMSIG(status)) + " on rank " + str(rank)
                    self.killed.append({"at": time.time(), "text": text, "rank": rank, "crash": True})
        errors = list(self.killed)
        for rank, at in enumerate(self.at):
            if os.path.exists(at + ".error"):
                errors.append(json.loads(read(at + ".error")) | {"rank": rank})
        if not errors and len(self.ended) < self.n and time.time() < self.until:
            return None
        for pid in self.pids:
            if pid not in self.ended:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        began = [float(read(at + ".began")) for at in self.at if os.path.exists(at + ".began")]
        first = min(errors, key=lambda one: one["at"], default=None)
        seconds = first["at"] - max(began) if first and began else None
        return {**{name: self.job[name] for name in ("peer", "case", "n")}, "seconds": seconds,
                "text": first["text"] if first else "", "crash": bool(first and first.get("crash"))}

waiting, running = list(enumerate(given)), []
while waiting or running:
    while waiting and len(running) < at_a_time:
        running.append(Running(*waiting.pop(0)))
    for one in list(running):
        result = one.result()
        if result:
            running.remove(one)
            print("RESULT " + json.dumps(result), flush=True)
    time.sleep(0.02)
"""


@dataclass(frozen=True)
class Said:
    """What a peer said first of a hang: after how long (None: nothing), and which ranks its text names."""

    seconds: float | None
    text: str
    named: frozenset[int]
    crashed: bool = False

    def extrapolated(self, usual_s: float) -> float | None:
        """Seconds with a time-out of ``usual_s``; what came before the time-out does not depend on it."""
        if self.seconds is None or self.seconds < TIMEOUT_S * 0.9:
            return self.seconds
        return self.seconds - TIMEOUT_S + usual_s


def named(text: str) -> frozenset[int]:
    """The ranks that an error text names, without the rank that reports it."""
    text = re.sub(r"\[[Rr]ank \d+\]:?", "", text)
    found = re.findall(r"\b[Rr]anks?[ :]*\[?(\d+(?:, ?\d+)*)", text)
    return frozenset(int(one) for several in found for one in several.split(","))


def said(
    kinds: tuple[Kind, ...], sizes: tuple[int, ...], peers: tuple[str, ...] = PEERS
) -> dict[tuple[str, str, int], Said]:
    """By peer, case and number of ranks."""
    jobs = [
        {"peer": peer, "path": kind.path, "case": kind.case, "n": n} for peer in peers for n in sizes for kind in kinds
    ]
    with ranks.memory_folder() as folder:
        command = [sys.executable, "-c", PEER, str(TIMEOUT_S), str(_AT_A_TIME), json.dumps(jobs), folder]
        environment = {**ranks.ENVIRONMENT, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900, check=False)
    lines = [json.loads(line.partition(" ")[2]) for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if len(lines) != len(jobs):
        raise RuntimeError(f"{len(lines)} of {len(jobs)} runs of the peers gave a result: {done.stderr[-300:]}")
    return {
        (one["peer"], one["case"], one["n"]): Said(
            one["seconds"], one["text"], frozenset() if one["crash"] else named(one["text"]), one["crash"]
        )
        for one in lines
    }
