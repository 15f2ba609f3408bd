"""What hands on ranks take: release, a new group, a new rank, and whether a hundred cycles leave anything behind.

``python -m benchmarks.hands [CYCLES]``: 4 ranks on gloo; 100 cycles of hang, release, rebuild.
"""

from __future__ import annotations

import os
import statistics
import sys
import time

import psutil

import ddpnb

RANKS = 4
EARLY = 10  # cycles after which the first count is taken: caches are full by then


def hangs(odd):
    """All-reduces, of which one rank leaves one out."""
    import torch
    import torch.distributed as dist

    total = torch.ones(1000)
    for step in range(6):
        if dist.get_rank() == odd and step == 3:
            continue
        dist.all_reduce(total)


def works():
    import torch
    import torch.distributed as dist

    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


def held(world):
    """Of all ranks: processes, threads, descriptors, sockets, and memory in MB."""
    found = dict.fromkeys(("processes", "threads", "descriptors", "sockets", "MB"), 0)
    for pid in world.pids():
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
        found["processes"] += len(family)
        for one in family:
            found["threads"] += one.num_threads()
            found["descriptors"] += one.num_fds()
            found["sockets"] += len(one.net_connections("tcp"))
            found["MB"] += one.memory_full_info().uss // (1 << 20)
    return found


def cycles(count):
    released, rebuilt = [], []
    early = None
    with ddpnb.launch(RANKS, patience=2.0, quiet=True) as world:
        world.rebuild()
        for number in range(count):
            run = world.run(hangs, number % RANKS, stream=None).wait(30)
            assert run.outcome == "hang", run.diagnosis
            began = time.perf_counter()
            freed = world.release()
            released.append(time.perf_counter() - began)
            assert not freed.left, freed
            began = time.perf_counter()
            world.rebuild()
            assert world.run(works, stream=None).wait(30).results == [float(RANKS)] * RANKS
            rebuilt.append(time.perf_counter() - began)
            if number + 1 == min(EARLY, count):
                early = held(world)
        late = held(world)
    tell("release of 4 hung ranks: all back", released, 1.0)
    tell("then a new group, used", rebuilt, 2.0)
    print(f"after {min(EARLY, count)} cycles: {early}\nafter {count} cycles: {late}")


def restarts(count=5):
    again, fresh = [], []
    with ddpnb.launch(2, quiet=True) as world:
        engines = world._ranks.processes
        for number in range(count):
            extra = 2 + number
            began = time.perf_counter()
            engines._start_engine(extra, world._ranks.environment(1, world._ranks.new_port()) | {"RANK": str(extra)})
            engines._wait_for([extra], time.monotonic() + 60)
            fresh.append(time.perf_counter() - began)
            engines.kill(extra)
            began = time.perf_counter()
            world.restart(1)
            again.append(time.perf_counter() - began)
    ratio = statistics.median(again) / statistics.median(fresh)
    print(
        f"restart of one rank: median {statistics.median(again):.2f} s, start of one engine in the same world "
        f"{statistics.median(fresh):.2f} s: x{ratio:.2f} (1.2 wanted)"
    )


def tell(what, seconds, wanted):
    ordered = sorted(seconds)
    print(
        f"{what}: median {statistics.median(ordered):.3f} s, p95 {ordered[int(0.95 * (len(ordered) - 1))]:.3f} s, "
        f"most {ordered[-1]:.3f} s ({wanted:g} s wanted)"
    )


if __name__ == "__main__":
    print(f"{os.cpu_count()} cores")
    cycles(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
    restarts()
