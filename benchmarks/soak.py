"""Healthy scripts, over and over: counts false alarms. ``python -m benchmarks.soak [RUNS]``."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import ddpnb

HEALTHY = Path(__file__).parent.parent / "tests" / "victims" / "healthy.py"


def main(runs: int) -> int:
    cases = re.findall(r"^def (\w+)\(rank\)", HEALTHY.read_text(), re.MULTILINE)
    alarms = 0
    with ddpnb.launch(4, quiet=True) as world:
        for number in range(runs):
            case = cases[number % len(cases)] if number < len(cases) else random.choice(cases)
            run = world.run(HEALTHY, case, stream=None).wait(120)
            if run.outcome != "ok" or run.diagnosis.findings:
                alarms += 1
                print(f"run {number}, {case}: {run.outcome}\n{run.diagnosis}", flush=True)
                for rank, ending in run.endings.items():
                    if ending is not None and not ending.well:
                        print(f"end of rank {rank}'s log:\n{run.log(rank)[-4000:]}", flush=True)
                world.restart()
    print(f"{runs} healthy runs, {alarms} false alarms")
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
