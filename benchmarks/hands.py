"""What control of ranks takes: a snapshot, a release, a new group, a new rank; and whether many cycles leave anything behind.

4 ranks on gloo. The peer of a snapshot is ``py-spy dump`` of all ranks at the same time; that of a release is to kill a
hung job of torchrun and to start it again. ``python -m benchmarks.hands cycles [COUNT]``: COUNT (100) cycles of hang,
release, rebuild in one world, with what is left of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import ddpnb
from benchmarks import ranks
from benchmarks.rows import Goal, Row
from benchmarks.show import alone, text

RANKS, LOOKS, CYCLES = 4, 20, 5
EARLY = 10  # cycles after which the first count is taken: caches are full by then
SPY = os.path.join(os.path.dirname(sys.executable), "py-spy")
#: hangs if the file ``broken`` exists; each rank notes when its last good all-reduce has ended
JOB = """
import os, time, torch, torch.distributed as dist
folder = os.environ["BENCH_FOLDER"]
broken = os.path.exists(os.path.join(folder, "broken"))
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1000))
with open(os.path.join(folder, os.environ["RANK"]), "w") as file:
    file.write("1")
if broken and dist.get_rank() == 0:
    dist.all_reduce(torch.ones(1000))
dist.barrier()
"""


def hangs(odd):
    """All-reduces, of which one rank leaves one out."""
    import torch
    import torch.distributed as dist

    total = torch.ones(1000)
    for step in range(6):
        if dist.get_rank() == odd and step == 3:
            continue
        dist.all_reduce(total)


def receives():
    """Every rank waits for the one before it."""
    import torch
    import torch.distributed as dist

    dist.recv(torch.zeros(4), src=(dist.get_rank() - 1) % dist.get_world_size())


def works():
    import torch
    import torch.distributed as dist

    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


def snapshots(quick: bool = False) -> Iterator[Row]:
    """a snapshot of hung ranks"""
    n = 2 if quick else RANKS
    ours, theirs = [], []
    with ddpnb.launch(n, patience=2.0, end_after_patience=True, quiet=True) as world:
        world.rebuild()
        assert world.run(receives, stream=None).wait(60).outcome == "hang"
        for _ in range(2 if quick else LOOKS):
            began = time.perf_counter()
            recording = world.snapshot()
            ours.append(time.perf_counter() - began)
            assert all(record.stacks for record in recording.ranks.values())
            began = time.perf_counter()
            dumps = [
                subprocess.Popen([SPY, "dump", "--locals", "--pid", str(pid)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                for pid in world.pids()
            ]  # fmt: skip
            written = [dump.communicate(timeout=60) for dump in dumps]
            theirs.append(time.perf_counter() - began)
            for dump, (output, errors) in zip(dumps, written, strict=True):
                if dump.returncode or "recv" not in output:
                    raise RuntimeError(f"py-spy: {(errors or output)[-200:]}")
    yield Row(
        "snapshot", f"{n} hung ranks: stacks, locals, collectives", tuple(ours), peer="py-spy dump --locals of all",
        theirs=tuple(theirs), goal=Goal(0.02, "median"), note="py-spy knows no collectives",
    )  # fmt: skip


def releases(quick: bool = False) -> Iterator[Row]:
    """release and a new group"""
    n = 2 if quick else RANKS
    released, again, restarted = [], [], []
    with (
        ddpnb.launch(n, patience=2.0, end_after_patience=True, quiet=True) as world,
        tempfile.TemporaryDirectory() as folder,
        ranks.script(JOB) as path,
    ):
        world.rebuild()
        for number in range(1 if quick else CYCLES):
            freed, working = _cycle(world, number % n)
            released.append(freed)
            again.append(freed + working)
            restarted.append(_kill_and_start_again(path, Path(folder), n))
    peer = {"peer": "kill and start again with torchrun", "theirs": tuple(restarted)}
    yield Row("release", f"{n} hung ranks, until all are idle", tuple(released), goal=Goal(1.0, "most"), **peer)
    what = f"{n} hung ranks, until a new group has done an all_reduce"
    yield Row("release", what, tuple(again), goal=Goal(2.0, "most"), **peer)


def _cycle(world: ddpnb.World, odd: int) -> tuple[float, float]:
    """Seconds of a release, and then to the end of the first all-reduce of a new group."""
    run = world.run(hangs, odd, stream=None).wait(30)
    assert run.outcome == "hang", run.diagnosis
    began = time.perf_counter()
    freed = world.release()
    seconds = time.perf_counter() - began
    assert not freed.left, freed
    began = time.perf_counter()
    world.rebuild()
    count = len(world.pids())
    assert world.run(works, stream=None).wait(30).results == [float(count)] * count
    return seconds, time.perf_counter() - began


def _kill_and_start_again(path: str, folder: Path, n: int) -> float:
    """Seconds from a hung job of torchrun to the first all-reduce of the next one."""

    def start() -> subprocess.Popen[bytes]:
        for rank in range(n):
            (folder / str(rank)).unlink(missing_ok=True)
        environment = {**ranks.ENVIRONMENT, "BENCH_FOLDER": str(folder)}
        command = [ranks.TORCHRUN, "--nproc-per-node", str(n), path]
        job = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 120
        while not all((folder / str(rank)).exists() for rank in range(n)):
            if job.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"torchrun did not start its ranks (exit status {job.poll()})")
            time.sleep(0.02)
        return job

    (folder / "broken").touch()
    job = start()
    try:
        (folder / "broken").unlink()
        time.sleep(0.5)  # it is hung now
        began = time.perf_counter()
        job.send_signal(signal.SIGTERM)
        job.wait(60)
        job = start()
        seconds = time.perf_counter() - began
        job.wait(60)
        return seconds
    finally:
        job.kill()
        job.wait()


def held(world):
    """Of all ranks: processes, threads, descriptors, sockets, and memory in MB."""
    found = dict.fromkeys(("processes", "threads", "descriptors", "sockets", "MB"), 0)
    for pid in world.pids():
        family = ranks.family(pid)
        found["processes"] += len(family)
        for one in family:
            found["threads"] += one.num_threads()
            found["descriptors"] += one.num_fds()
            found["sockets"] += len(one.net_connections("tcp"))
            found["MB"] += one.memory_full_info().uss // (1 << 20)
    return found


def cycles(count: int) -> list[Row]:
    """Many cycles in one world: what they take, and what they leave behind."""
    released, rebuilt = [], []
    early = None
    with ddpnb.launch(RANKS, patience=2.0, end_after_patience=True, quiet=True) as world:
        world.rebuild()
        for number in range(count):
            seconds, working = _cycle(world, number % RANKS)
            released.append(seconds)
            rebuilt.append(working)
            if number + 1 == min(EARLY, count):
                early = held(world)
        late = held(world)
    print(f"after {min(EARLY, count)} cycles: {early}\nafter {count} cycles: {late}")
    return [
        Row(
            "release", f"{count} times: {RANKS} hung ranks, until all are idle", tuple(released), goal=Goal(1.0, "p95")
        ),
        Row("release", "then a new group, used", tuple(rebuilt), goal=Goal(2.0, "p95")),
    ]


def restarts(quick: bool = False) -> Iterator[Row]:
    """restart of one rank, against the start of one engine in the same world"""
    again, fresh = [], []
    with ddpnb.launch(2, quiet=True) as world:
        engines = world._ranks.processes
        for number in range(1 if quick else 5):
            extra = 2 + number
            began = time.perf_counter()
            engines._start_engine(extra, world._ranks.environment(1, world._ranks.new_port()) | {"RANK": str(extra)})
            engines._wait_for([extra], time.monotonic() + 60)
            fresh.append(time.perf_counter() - began)
            engines.kill(extra)
            began = time.perf_counter()
            world.restart(1)
            again.append(time.perf_counter() - began)
    yield Row(
        "release", "restart of one rank", tuple(again), peer="start of one engine", theirs=tuple(fresh), goal=Goal(1.2)
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["cycles"]:
        text(cycles(int(sys.argv[2]) if len(sys.argv) > 2 else 100))
    else:
        alone("hands", snapshots, releases, restarts)
