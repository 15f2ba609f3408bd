"""What this machine has, by the files in which the system tells it."""

from __future__ import annotations

import os
import sys

import pytest

from ddpnb.ranks import machine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_facts_of_this_machine():
    found = machine.facts()
    assert 0 < found["cores"] <= (os.cpu_count() or 1)
    assert 0 < found["memory_available"] <= found["memory_total"]
    assert 0 <= found["shm_free"] <= found["shm_total"]
    assert found["oom_kills_anywhere"] >= 0


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """A control group two folders deep, of version 2."""
    inner = tmp_path / "pod" / "task"
    inner.mkdir(parents=True)
    monkeypatch.setattr(machine, "_control_groups", lambda _: iter([str(inner), str(inner.parent), str(tmp_path)]))
    return inner


def test_the_tightest_quota_counts(groups):
    (groups / "cpu.max").write_text("max 100000\n")
    (groups.parent / "cpu.max").write_text("50000 100000\n")
    assert machine.cores() == 0.5


def test_the_quota_of_version_1(groups):
    (groups / "cpu.cfs_quota_us").write_text("-1\n")
    (groups.parent / "cpu.cfs_quota_us").write_text("25000\n")
    (groups.parent / "cpu.cfs_period_us").write_text("100000\n")
    assert machine.cores() == 0.25


def test_the_limit_of_the_container(groups):
    (groups / "memory.max").write_text("max\n")
    (groups.parent / "memory.max").write_text(f"{64 << 20}\n")
    (groups.parent / "memory.current").write_text(f"{60 << 20}\n")
    (groups.parent / "memory.stat").write_text(f"anon 5\ninactive_file {10 << 20}\n")
    found = machine.facts()
    assert (found["memory_total"], found["memory_available"]) == (64 << 20, 14 << 20)


def test_kills_of_the_group_and_of_the_machine(groups):
    (groups / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    (groups.parent / "memory.events").write_text("oom_kill 7\n")
    found = machine.oom_kills()
    assert found["oom_kills"] == 2 and found["oom_kills_anywhere"] >= 0


def test_kills_of_the_groups_of_ranks(tmp_path, monkeypatch):
    """Each rank may be in one of its own; what happens in others, such as that of this process, is not theirs."""
    ranks = {11: "a", 12: "b", 13: "a"}
    for name, kills in {"a": 1, "b": 2, "me": 40}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "memory.events").write_text(f"oom_kill {kills}\n")
    monkeypatch.setattr(
        machine,
        "_control_groups",
        lambda _, pid="self": iter([str(tmp_path / "no"), str(tmp_path / ranks.get(pid, "me"))]),
    )
    groups = machine.memory_groups(ranks)
    assert [group.rpartition("/")[2] for group in groups] == ["a", "b"]
    assert machine.oom_kills(groups)["oom_kills"] == 3
    assert machine.oom_kills()["oom_kills"] == 40 and machine.memory_groups(()) == ()


def test_what_is_not_told_is_left_out(groups):
    for name in ("cpu.max", "memory.max", "memory.current", "memory.events"):
        (groups / name).write_text("nonsense \x00 of all kinds\n\n")
    assert machine.cores() > 0 and machine.facts()["memory_total"] > 0
