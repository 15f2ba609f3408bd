"""From the file of a recorded hang to the live hang under its name: ``python -m benchmarks.reenact``.

The world of 4 ranks is up; that it starts is not in it (``benchmarks.launch`` measures that). The time is that of
``ddpnb.reenact(file, world)``: reading, planning, the run until all ranks hang, and its diagnosis. A rank that is blocked
outside any collective is named after the patience of re-enactments, 2 s.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time

import ddpnb
from tests.reenactment import programs

ROUNDS, WANTED_S = 3, 5.0
CASES = {
    "a missing rank": (programs.never_called, 4),
    "another operation": (programs.other_operation, 4),
    "two groups, crossed": (programs.crossed, 4),
    "two ranks that receive first": (programs.receives_first, 4),
    "uneven iterations": (programs.uneven, 4),
    "a rank blocked elsewhere": (programs.elsewhere, 4),
    "a rank that raised": (programs.raised, 4),
    "512 ranks on four": (programs.tensor_and_data_parallel, 512),
}


def main() -> None:
    print(f"{'':30} {'recorded':>10} {'live':>8} {'median':>8} {'most':>8}   wanted: {WANTED_S:.0f} s")
    with tempfile.TemporaryDirectory() as folder, ddpnb.launch(4, quiet=True) as world:
        for name, (kind, ranks) in CASES.items():
            path = os.path.join(folder, "hang.ddpnb")
            programs.recording_of(kind, ranks).save(path)
            times = list[float]()
            for _ in range(ROUNDS):
                began = time.perf_counter()
                reenactment = ddpnb.reenact(path, world, ranks=4)
                times.append(time.perf_counter() - began)
                assert reenactment.same, str(reenactment)
                reenactment.close()
                world.restart()
            assert reenactment.expected is not None and reenactment.finding is not None
            codes = f"{reenactment.expected.code:>10} {reenactment.finding.code:>8}"
            print(f"{name:30} {codes} {statistics.median(times):6.2f} s {max(times):6.2f} s")


if __name__ == "__main__":
    main()
