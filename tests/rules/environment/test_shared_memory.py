"""Shared memory that is nearly full."""

from __future__ import annotations

import pytest

from tests.rules.environment.jobs import recorded
from tests.rules.recordings import asked, line

MIB = 1 << 20


@pytest.mark.parametrize(
    ("free", "workers", "severity"), [(50, 2, "note"), (5, 2, "warning"), (0.5, 1, "warning"), (20, 16, "warning")]
)
def test_the_less_is_free_the_worse(free, workers, severity):
    def make(rank):
        rank.loader(line(5), num_workers=workers if rank.rank in (1, 3) else 0)

    (found,) = asked("DDP506", recorded(make, shm_total=64 * MIB, shm_free=free * MIB))
    assert (found.severity, found.culprits, found.where) == (severity, (1, 3), ((1, line(5)), (3, line(5))))
    assert f"{free:.0f} MiB left of 64 MiB" in found.summary


@pytest.mark.parametrize(
    ("workers", "host"),
    [
        (0, {"shm_free": MIB, "shm_total": 64 * MIB}),
        (2, {"shm_free": 1024 * MIB, "shm_total": 2048 * MIB}),
        (2, {"shm_free": 0, "shm_total": 0}),
        (2, {"shm_free": 1}),
        (2, {}),
    ],
    ids=["no workers", "room enough", "no shared memory", "half known", "nothing known"],
)
def test_shared_memory_that_is_no_trouble(workers, host):
    assert asked("DDP506", recorded(lambda r: r.loader(num_workers=workers), **host)) == []
