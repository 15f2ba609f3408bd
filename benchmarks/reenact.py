"""From the file of a recorded hang to the live hang under its name: ``python -m benchmarks.reenact``.

The world of 4 ranks is up; that it starts is not in it (``benchmarks.launch`` measures that). The time is that of
``ddpnb.reenact(file, world)``: reading, planning, the run until all ranks hang, and its diagnosis. A rank that is blocked
outside any collective is named after the patience of re-enactments, 2 s.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator

import ddpnb
from benchmarks.rows import Goal, Row
from benchmarks.show import alone
from tests.studies.reenactment import programs

ROUNDS, RANKS, WANTED_S = 3, 4, 5.0
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


def reenactments(quick: bool = False) -> Iterator[Row]:
    """from a recorded hang to the live one"""
    chosen = list(CASES.items())[: 1 if quick else len(CASES)]
    with tempfile.TemporaryDirectory() as folder, ddpnb.launch(RANKS, quiet=True) as world:
        for name, (kind, ranks) in chosen:
            path = os.path.join(folder, "hang.ddpnb")
            programs.recording_of(kind, ranks).save(path)
            times = list[float]()
            for _ in range(1 if quick else ROUNDS):
                began = time.perf_counter()
                reenactment = ddpnb.reenact(path, world, ranks=RANKS)
                times.append(time.perf_counter() - began)
                assert reenactment.same, str(reenactment)
                reenactment.close()
                left = world.release().left
                if left:
                    world.restart(left)
            assert reenactment.expected is not None and reenactment.finding is not None
            note = f"recorded {reenactment.expected.code}, live {reenactment.finding.code}"
            yield Row(
                "reenact",
                f"from the file to the live hang: {name}",
                tuple(times),
                goal=Goal(WANTED_S, "most"),
                note=note,
            )


if __name__ == "__main__":
    alone("reenact", reenactments)
