"""Cores, memory, limits and disk space."""

from __future__ import annotations

import pytest

from ddpnb.world.host import resources

GIB = 1 << 30


@pytest.mark.parametrize(("threads", "state"), [("", "ok"), ("1", "ok"), ("x", "ok"), ("32", "warning")])
def test_threads_of_all_ranks(threads, state):
    check = resources.cores({"cores": 8.0}, 4, {"OMP_NUM_THREADS": threads})
    assert (check.state, check.code) == (state, "DDP704" if state == "warning" else "")
    assert state == "ok" or "OMP_NUM_THREADS=2" in check.todo


@pytest.mark.parametrize(
    ("facts", "state", "words"),
    [
        ({}, "unknown", "not available"),
        ({"memory_available": 20 * GIB, "memory_total": 1 << 60}, "ok", "20.0 of"),
        ({"memory_available": GIB // 2, "memory_total": 2 * GIB}, "warning", "0.5 of 2.0 GiB available (limit of the control group)"),
        ({"memory_available": 20 * GIB, "memory_total": 1 << 60, "oom_kills": 3}, "warning", "has killed 3 processes here"),
    ],
)  # fmt: skip
def test_memory(facts, state, words):
    check = resources.memory(facts)
    assert check.state == state and words in check.told and check.code == ("DDP706" if state == "warning" else "")


@pytest.mark.parametrize(("free", "state"), [(GIB, "ok"), (64 << 20, "warning")])
def test_shared_memory(free, state):
    check = resources.shared_memory({"shm_free": free, "shm_total": 2 * GIB})
    assert (check.state, check.code) == (state, "DDP506" if state == "warning" else "")
    assert resources.shared_memory({}).state == "unknown"


def test_locked_memory():
    assert resources.locked_memory(-1, -1).state == "ok"
    check = resources.locked_memory(65536, 65536)
    assert check.state == "warning" and "64 KiB" in check.told and "ulimit -l unlimited" in check.todo


def test_disk(tmp_path):
    check = resources.disk((str(tmp_path), str(tmp_path), "/no/such/folder"))
    assert check.state in ("ok", "warning") and list(check.details["free"]) == [str(tmp_path)]
    assert resources.disk(("/no/such/folder",)).state == "unknown"


def test_this_machine():
    assert {"cores", "memory", "/dev/shm", "open files", "disk"} <= {one.name for one in resources.checks(2, {})}
