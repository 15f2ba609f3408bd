"""From nothing to the end of the first all-reduce on 4 ranks: ``ddpnb.launch`` against ``torchrun``.

Each is a whole process from its start; also the proportional memory (PSS) of a world of 4.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

PAIRS = 5
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


def once(command: list[str], folder: str) -> tuple[float, str]:
    for rank in range(4):
        if os.path.exists(os.path.join(folder, str(rank))):
            os.unlink(os.path.join(folder, str(rank)))
    began = time.time()
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120, env={**os.environ, "BENCH_FOLDER": folder}
    )
    ends = [float(open(os.path.join(folder, str(rank))).read()) for rank in range(4)]
    return max(ends) - began, done.stdout


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "first.py")
        with open(script, "w") as file:
            file.write(SCRIPT)
        theirs = [os.path.join(os.path.dirname(sys.executable), "torchrun"), "--nproc-per-node", "4", script]
        ours = [sys.executable, "-c", OURS, script]
        once(theirs, folder)
        once(ours, folder)
        times: tuple[list[float], list[float]] = ([], [])
        memory = []
        for _ in range(PAIRS):
            times[0].append(once(theirs, folder)[0])
            seconds, said = once(ours, folder)
            times[1].append(seconds)
            memory.append(int(said.split()[-1]) / 1e6)
    print(f"to the end of the first all-reduce, 4 ranks, {PAIRS} pairs")
    for name, values in zip(("torchrun", "ddpnb.launch + run"), times, strict=True):
        print(f"  {name:<20} median {statistics.median(values):.2f} s   ({min(values):.2f} - {max(values):.2f})")
    print(f"  ratio, pair by pair: median {statistics.median(b / a for a, b in zip(*times, strict=True)):.2f}")
    print(f"PSS of a world of 4 on CPU, controller and this process included: {statistics.median(memory):.0f} MB")


if __name__ == "__main__":
    main()
