"""Shared memory that is nearly full."""

from __future__ import annotations

import pytest

from ddpnb.rules.rules import environment
from tests.rules.environment.jobs import GIB, recorded
from tests.rules.recordings import line, record


def test_all_is_well():
    assert environment(recorded(lambda r: r, cores=8, shm_total=GIB, shm_free=GIB)) == []
    assert environment(record()) == []


def test_shared_memory_that_is_full_where_workers_need_it():
    recording = recorded(
        lambda r: r.loader(line(5), num_workers=2 if r.rank in (1, 3) else 0), shm_total=64 << 20, shm_free=3 << 20
    )
    (found,) = environment(recording)
    assert (found.code, found.severity, found.culprits) == ("DDP506", "warning", (1, 3))
    assert "3 MiB left of 64 MiB" in found.summary
    assert found.where == ((1, line(5)), (3, line(5)))


@pytest.mark.parametrize(
    ("workers", "host"),
    [(0, {"shm_free": 1, "shm_total": GIB}), (2, {"shm_free": GIB, "shm_total": 2 * GIB}), (2, {}), (2, {"shm_free": 1})],
    ids=["no workers", "room enough", "nothing known", "half known"],
)  # fmt: skip
def test_shared_memory_that_is_no_trouble(workers, host):
    assert environment(recorded(lambda r: r.loader(num_workers=workers), **host)) == []
