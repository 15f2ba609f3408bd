"""From nothing to the end of the first all-reduce on 4 ranks, against ``torchrun``; and what the recorder adds to a start.

Each is a whole process from its start, in turn with the others; bytecode is cached, as it is for users. Also the
proportional memory (PSS) of a world of 4. ``python -m benchmarks.launch start`` prints only what the recorder adds: to
one rank, to a process that imports torch and is none, and to one that does not import torch.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS, STARTS = 5, 15
SCRIPT = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4))
open(os.path.join(os.environ["BENCH_FOLDER"], os.environ["RANK"]), "w").write(str(time.time()))
dist.barrier()
dist.destroy_process_group()
"""
OURS = """
import os, sys, ddpnb
with ddpnb.launch(4, quiet=True) as world:
    assert world.run(sys.argv[1], stream=None).wait(60).outcome == "ok"
    import psutil
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    print(sum(p.memory_full_info().pss for p in family))
"""
ONE_RANK = """
import torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
"""
PROCESSES = {"one rank": ONE_RANK, "imports torch, no rank": "import torch", "no torch": "import json"}
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def once(command: list[str], folder: str) -> tuple[float, str]:
    for rank in range(4):
        if os.path.exists(os.path.join(folder, str(rank))):
            os.unlink(os.path.join(folder, str(rank)))
    began = time.time()
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120, env={**ENVIRONMENT, "BENCH_FOLDER": folder}
    )
    ends = [float(open(os.path.join(folder, str(rank))).read()) for rank in range(4)]
    return max(ends) - began, done.stdout


def launches() -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "first.py")
        with open(script, "w") as file:
            file.write(SCRIPT)
        torchrun = os.path.join(os.path.dirname(sys.executable), "torchrun")
        run = [sys.executable, "-m", "ddpnb", "run", "-n", "4"]
        commands = {
            "torchrun": [torchrun, "--nproc-per-node", "4", script],
            "ddpnb run": [*run, script],
            "ddpnb run --fork": [*run, "--fork", script],
            "ddpnb.launch + run": [sys.executable, "-c", OURS, script],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        memory = []
        for number in range(ROUNDS + 1):
            for name, command in commands.items():
                seconds, said = once(command, folder)
                if number:  # the first of each is not counted: files come from the disk
                    times[name].append(seconds)
                    memory += [int(said.split()[-1]) / 1e6] if command[1] == "-c" else []
    print(f"to the end of the first all-reduce, 4 ranks, {ROUNDS} rounds")
    for name, values in times.items():
        ratio = statistics.median(one / base for one, base in zip(values, times["torchrun"], strict=True))
        print(
            f"  {name:<20} median {statistics.median(values):.2f} s   ({min(values):.2f} - {max(values):.2f})   x{ratio:.2f}"
        )
    print(f"PSS of a world of 4 on CPU, controller and this process included: {statistics.median(memory):.0f} MB")


def starts() -> None:
    """What the recorder adds to whole processes: median of differences, each pair in turn."""
    from ddpnb.processes.jobs.injection import injected

    print(f"what the recorder adds to a process from its start to its end, {STARTS} pairs")
    for name, code in PROCESSES.items():
        pairs = []
        for number in range(STARTS + 1):
            pair = []
            for recorded in (False, True):
                with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
                    environment = injected(ENVIRONMENT, folder, "warn") if recorded else ENVIRONMENT
                    began = time.perf_counter()
                    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)
                    pair.append((time.perf_counter() - began) * 1e3)
            pairs += [pair] if number else []
        plain = statistics.median(pair[0] for pair in pairs)
        adds = statistics.median(recorded - bare for bare, recorded in pairs)
        print(f"  {name:<24} plain {plain:7.1f} ms   adds {adds:6.1f} ms")


if __name__ == "__main__":
    if sys.argv[1:] != ["start"]:
        launches()
    starts()
