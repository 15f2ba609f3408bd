"""From nothing to the end of the first all-reduce on 4 ranks, and the memory that these take, against ``torchrun`` and ipyparallel.

Each is a whole process from its start, in turn with the others; bytecode is cached, as it is for users. Plain ipyparallel is
used as its documentation says: a Cluster, a view, and a function that calls torch. Memory is proportional (PSS), of all
processes. ``python -m benchmarks.launch start`` prints only what the recorder adds: to one rank, to a process that imports
torch and is none, and to one that does not import torch.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import ranks
from benchmarks.rows import Goal, Row
from benchmarks.show import alone

ROUNDS, STARTS, RANKS = 5, 8, 4
GOAL = 0.7
#: a rank stays until the file ``go`` exists: its memory is read meanwhile
SCRIPT = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4))
folder = os.environ["BENCH_FOLDER"]
path = os.path.join(folder, os.environ["RANK"])
with open(path + ".part", "w") as file:
    file.write(f"{time.time()} {os.getpid()}")
os.rename(path + ".part", path)
while not os.path.exists(os.path.join(folder, "go")):
    time.sleep(0.02)
dist.barrier()
dist.destroy_process_group()
"""
OURS = """
import sys, ddpnb
with ddpnb.launch(int(sys.argv[2]), quiet=True, fork=sys.argv[3] == "fork") as world:
    assert world.run(sys.argv[1], stream=None).wait(120).outcome == "ok"
"""
IPYPARALLEL = """
import sys, ipyparallel as ipp

def first(path, rank, n, port):
    import os, runpy
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(n), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    runpy.run_path(path, run_name="__main__")

path, n, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with ipp.Cluster(n=n) as client:
    client.wait_for_engines(n)
    results = [client[rank].apply_async(first, path, rank, n, port) for rank in range(n)]
    for result in results:
        result.get(120)
"""
ONE_RANK = """
import torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
"""
PROCESSES = {"one rank": ONE_RANK, "imports torch, no rank": "import torch", "no torch": "import json"}


def once(command: list[str], folder: str, n: int = RANKS) -> tuple[float, list[float], float]:
    """Seconds to the end of the first all-reduce of all ranks; MB of each rank, and of all processes together."""
    for path in Path(folder).iterdir():
        path.unlink()
    with tempfile.TemporaryFile("w+") as output:
        began = time.time()
        environment = {**ranks.ENVIRONMENT, "BENCH_FOLDER": folder}
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            marks = [Path(folder) / str(rank) for rank in range(n)]
            while not all(mark.exists() for mark in marks):
                if process.poll() is not None or time.time() > began + 120:
                    output.seek(0)
                    raise RuntimeError(f"{command[:4]} did not start its ranks: {output.read()[-400:]}")
                time.sleep(0.02)
            ends, pids = zip(*(map(float, mark.read_text().split()) for mark in marks), strict=True)
            everything = sum(ranks.pss(ranks.family(process.pid)))
            of_ranks = ranks.pss(int(pid) for pid in pids)
            (Path(folder) / "go").touch()
            process.wait(120)
            return max(ends) - began, of_ranks, everything
        finally:
            process.kill()
            process.wait()


def launches(quick: bool = False) -> Iterator[Row]:
    """launch and memory"""
    n = 2 if quick else RANKS
    torchrun, plain = "torchrun", "plain ipyparallel"
    ours, forked = "ddpnb.launch", "ddpnb.launch(fork=True)"
    ways = (ours, forked, "ddpnb run", "ddpnb run --fork", torchrun, plain)
    times: dict[str, list[float]] = {way: [] for way in ways}
    of_rank: dict[str, list[float]] = {way: [] for way in ways}
    in_all: dict[str, list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder, ranks.script(SCRIPT) as path:
        run = [sys.executable, "-m", "ddpnb", "run", "-n", str(n)]
        for number in range(1 if quick else ROUNDS + 1):
            commands = {
                ours: [sys.executable, "-c", OURS, path, str(n), "new"],
                forked: [sys.executable, "-c", OURS, path, str(n), "fork"],
                "ddpnb run": [*run, path],
                "ddpnb run --fork": [*run, "--fork", path],
                torchrun: [ranks.TORCHRUN, "--nproc-per-node", str(n), path],
                plain: [sys.executable, "-c", IPYPARALLEL, path, str(n), str(ranks.free_port())],
            }
            for way, command in commands.items():
                seconds, each, everything = once(command, folder, n)
                if number or quick:  # the first of each is not counted: files come from the disk
                    times[way].append(seconds)
                    of_rank[way].append(statistics.median(each))
                    in_all[way].append(everything)
    for way, peer, goal in (
        (ours, torchrun, GOAL), (forked, torchrun, GOAL), (ours, plain, 1.0), ("ddpnb run", torchrun, 0.95),
        ("ddpnb run --fork", torchrun, 0.35),
    ):  # fmt: skip
        what = f"{way}, {n} ranks, to the end of the first all_reduce"
        yield Row("launch", what, tuple(times[way]), peer=peer, theirs=tuple(times[peer]), goal=Goal(goal))
    for way, peer in ((ours, plain), (ours, torchrun), (forked, torchrun)):
        for what, sizes in (("each rank", of_rank), ("all processes", in_all)):
            goal = Goal(1000.0, "median") if sizes is in_all else None
            yield Row(
                "memory", f"PSS of {way}, {n} ranks after an all_reduce, {what}", tuple(sizes[way]), "MB", peer,
                tuple(sizes[peer]), goal,
            )  # fmt: skip


def starts(quick: bool = False) -> Iterator[Row]:
    """what the recorder adds to whole processes, each pair in turn"""
    from ddpnb.ranks.jobs.injection import injected

    for name, code in PROCESSES.items():
        pairs: list[list[float]] = []
        for number in range(1 if quick else STARTS + 1):
            pair = []
            for recorded in (False, True):
                with ranks.memory_folder() as folder:
                    environment = injected(ranks.ENVIRONMENT, folder, "warn") if recorded else ranks.ENVIRONMENT
                    began = time.perf_counter()
                    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)
                    pair.append(time.perf_counter() - began)
            pairs += [pair] if number or quick else []
        plain, recorded = (tuple(pair[at] for pair in pairs) for at in (0, 1))
        goal = Goal(0.15 if name == "one rank" else 0.01, "added")
        note = f"adds {statistics.median(b - a for a, b in pairs) * 1e3:.1f} ms"
        yield Row(
            "launch",
            f"a whole process with the recorder: {name}",
            recorded,
            peer="without",
            theirs=plain,
            goal=goal,
            note=note,
        )


if __name__ == "__main__":
    alone("launch", *(() if "start" in sys.argv[1:] else (launches,)), starts)
