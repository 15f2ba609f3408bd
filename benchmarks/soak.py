"""Healthy scripts, over and over: counts false alarms. ``python -m benchmarks.soak [RUNS]``.

All of ``tests/victims/healthy.py`` and every negative control of the scoreboard, in turn, in one world
of four ranks; whatever is found in one of them, a note excepted, is a false alarm. Half of the runs have two
busy loops beside them.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

import psutil

import ddpnb
from benchmarks.catalogue.cases import cases

RANKS = 4
LOOPS = 2  # beside every second block of runs
BLOCK = 25
HEALTHY = Path(__file__).parent.parent / "tests" / "victims" / "healthy.py"


def healthy() -> list[tuple[Path, tuple[str, ...]]]:
    """Scripts and their arguments."""
    victims = re.findall(r"^def (\w+)\(rank\)", HEALTHY.read_text(), re.MULTILINE)
    controls = [c for c in cases(["healthy"]) if RANKS in c.ranks and c.fence == "raise" and not c.environment]
    return [*((HEALTHY, (name,)) for name in victims), *((case.path, ()) for case in controls)]


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """So many processes that compute, for as long as this lasts."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main(runs: int) -> int:
    scripts = healthy()
    alarms, seconds, held = 0, {0: [], LOOPS: []}, []
    with ddpnb.launch(RANKS, quiet=True) as world:
        for number, (script, arguments) in enumerate(islice(cycle(scripts), runs)):
            loops = number // BLOCK % 2 * LOOPS
            with busy_loops(loops):
                began = time.monotonic()
                run = world.run(script, *arguments, stream=None).wait(120)
                seconds[loops].append(time.monotonic() - began)
            held.append(psutil.Process().memory_info().rss >> 20)
            if run.outcome != "ok" or any(finding.severity != "note" for finding in run.diagnosis.findings):
                alarms += 1
                print(f"run {number}, {script.stem} {' '.join(arguments)}: {run.outcome}\n{run.diagnosis}", flush=True)
                for rank, ending in run.endings.items():
                    if ending is not None and not ending.well:
                        print(f"end of rank {rank}'s log:\n{run.log(rank)[-4000:]}", flush=True)
                world.restart()
    print(
        f"{runs} healthy runs of {len(scripts)} scripts on {RANKS} ranks, {alarms} false alarms; "
        f"median {statistics.median(seconds[0]):.2f} s a run, {statistics.median(seconds[LOOPS] or [0.0]):.2f} s beside "
        f"{LOOPS} busy loops ({len(seconds[LOOPS])} runs); this process held {held[len(held) // 10]} MB after a tenth "
        f"of them and {held[-1]} MB in the end"
    )
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
