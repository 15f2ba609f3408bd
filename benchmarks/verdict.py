"""From the last rank's stop to the verdict, for 2 to 8 ranks; and the time that a snapshot takes.

The peer is the time-out of the process group: 1800 s on gloo, 600 s on NCCL, as the script itself
reads it from torch.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import ddpnb

VICTIMS = Path(__file__).parent.parent / "tests" / "victims"
CASES = [
    ("missing.py", "barrier_on_zero"),
    ("missing.py", "early_return"),
    ("missing.py", "continue_over"),
    ("mismatch.py", "operation"),
    ("p2p.py", "both_receive"),
    ("training.py", "uneven"),
    ("training.py", "raised"),
]


def main() -> None:
    from torch.distributed.constants import default_pg_nccl_timeout, default_pg_timeout

    print("seconds from the last rank's stop to the verdict, provable hangs")
    everything = []
    for n in (2, 4, 8):
        with ddpnb.launch(n, quiet=True, patience=5) as world:
            times = []
            for _ in range(3):
                for script, case in CASES:
                    world.restart()
                    run = world.run(VICTIMS / script, case, stream=None).wait(60)
                    if n > 2 or run.outcome != "ok":
                        times.append(run.diagnosis.timing["diagnosis_s"])
            everything += times
            print(
                f"  {n} ranks: median {statistics.median(times):.2f}  p95 {_p95(times):.2f}  max {max(times):.2f}  ({len(times)} hangs)"
            )
            if n == 4:
                _snapshots(world)
                _elsewhere(world)
    nccl = default_pg_nccl_timeout.total_seconds() if default_pg_nccl_timeout else 600
    print(
        f"  all: p95 {_p95(everything):.2f}   PyTorch's own: {default_pg_timeout.total_seconds():.0f} s gloo, {nccl:.0f} s NCCL"
    )


def _p95(values: list[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1) + 0.5)]


def _snapshots(world: ddpnb.World) -> None:
    world.restart()
    world.run(VICTIMS / "training.py", "evaluate_on_zero", stream=None).wait(60)
    world.restart()
    world.run(VICTIMS / "p2p.py", "ring", stream=None).wait(60)
    times = []
    for _ in range(50):
        began = time.perf_counter()
        recording = world.snapshot()
        times.append((time.perf_counter() - began) * 1e3)
        assert all(record.stacks for record in recording.ranks.values())
    print(f"  a snapshot of 4 hung ranks with stacks and locals: median {statistics.median(times):.1f} ms")


def _elsewhere(world: ddpnb.World) -> None:
    times = []
    for case in ("lock", "empty_queue", "sleep"):
        world.restart()
        run = world.run(VICTIMS / "elsewhere.py", case, stream=None).wait(60)
        times.append(run.diagnosis.timing["diagnosis_s"] - world.patience)
    print(f"  blocked elsewhere: patience {world.patience:.0f} s + {max(times):.2f} s at most")


if __name__ == "__main__":
    main()
