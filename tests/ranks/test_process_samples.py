"""Looks at real processes from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from ddpnb.ranks import process_samples
from ddpnb.ranks.process_samples import (
    GONE,
    STOPPED,
    ActivityTracker,
    ProcessSample,
    Sampler,
    all_processes,
    kernel_status,
    sample,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def followed(code, until, before=lambda pid: None):
    """Whether this becomes true of a process that was followed for a while; it may take some time until it has a core."""
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        time.sleep(0.5)
        before(process.pid)
        tracker, began = ActivityTracker(), time.monotonic()
        while (passed := time.monotonic() - began) < 0.8 or (passed < 30 and not until(tracker)):
            tracker.add(sample([process.pid])[process.pid])
            time.sleep(0.05)
        return until(tracker)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # with its children
        process.wait()


def test_computing():
    assert followed("while True: pass", lambda tracker: tracker.activity == "computing" and tracker.idle_s < 0.3)


def test_idle():
    assert followed("import time; time.sleep(60)", lambda tracker: tracker.activity == "idle" and tracker.idle_s > 1)


def test_a_computing_child_counts():
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    assert followed(code, lambda tracker: tracker.activity == "computing")


def test_writing_counts():
    """A checkpoint goes to a slow disk: little CPU, many bytes."""
    code = "import os, time\nf = open('/dev/null', 'wb', buffering=0)\nwhile True: f.write(bytes(1 << 16)); time.sleep(0.02)"
    assert followed(code, lambda tracker: tracker.idle_s < 0.5)


def test_stopped():
    stop = lambda pid: os.kill(pid, signal.SIGSTOP)  # noqa: E731
    assert followed("import time; time.sleep(60)", lambda tracker: tracker.activity == "stopped", stop)


@pytest.fixture
def passes(monkeypatch):
    """When all processes were looked through."""
    made, table = [], process_samples._process_table

    def counted():
        made.append(time.monotonic())
        return table()

    monkeypatch.setattr(process_samples, "_process_table", counted)
    return made


def test_a_process_that_computes_is_sampled_without_looking_through_all_others(passes):
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        sampler = Sampler()
        for _ in range(40):
            found = sampler.sample([process.pid])[process.pid]
            assert found.status in "RSD"
            time.sleep(0.05)
        assert len(passes) < 20
        process.kill()
        process.wait()
        assert sampler.sample([process.pid])[process.pid].status == GONE
    finally:
        process.kill()
        process.wait()


def test_the_child_of_an_idle_process_is_found_before_that_counts_as_idle():
    parent = subprocess.Popen(
        [sys.executable, "-c", "import subprocess, sys; input(); subprocess.run([sys.executable, '-c', 'while True: pass'])"],
        stdin=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        sampler, tracker = Sampler(), ActivityTracker()
        deadline = time.monotonic() + 240
        while tracker.activity != "idle" and time.monotonic() < deadline:
            tracker.add(sampler.sample([parent.pid])[parent.pid])
            time.sleep(0.05)
        parent.stdin.write(b"\n")
        parent.stdin.flush()
        found = ProcessSample()
        while (tracker.activity != "computing" or not found.descendants) and time.monotonic() < deadline:
            found = sampler.sample([parent.pid])[parent.pid]
            tracker.add(found)
            time.sleep(0.05)
        assert found.descendants
        assert tracker.activity == "computing"
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
        parent.stdin.close()


def test_gone():
    process = subprocess.Popen(["true"])
    process.wait()
    assert sample([process.pid])[process.pid].status == "gone"


def test_the_kernels_status_of_one_process():
    process = subprocess.Popen(["sleep", "60"])
    try:
        assert kernel_status(process.pid) in ("S", "R", "D")
        process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + 240
        while kernel_status(process.pid) not in STOPPED and time.monotonic() < deadline:
            time.sleep(0.01)
        assert kernel_status(process.pid) in STOPPED and kernel_status(os.getpid()) not in STOPPED
        process.kill()
        while kernel_status(process.pid) != GONE and time.monotonic() < deadline:
            time.sleep(0.01)
        assert kernel_status(process.pid) == GONE  # a zombie still
    finally:
        process.kill()
        process.wait()
    assert kernel_status(process.pid) == GONE


def test_without_proc_what_exists_is_never_idle(monkeypatch):
    """On Linux psutil knows nothing then either, and says so by an IndexError."""

    def no_list(*_):
        yield from "".split(maxsplit=1)[0]

    def no_process(*_):
        raise psutil.NoSuchProcess(1)

    monkeypatch.setattr(os.path, "isdir", lambda _: False)
    monkeypatch.setattr(psutil, "process_iter", no_list)
    monkeypatch.setattr(psutil, "Process", no_process)
    process = subprocess.Popen(["sleep", "60"])
    try:
        assert list(all_processes()) == []
        assert sample([0])[0].status == GONE  # of a rank that is about to start
        assert kernel_status(process.pid) == "S"
        assert looks(monkeypatch, 100.0, 100.5, 120.0, status=sample([process.pid])[process.pid].status).idle_s == 0
    finally:
        process.kill()
        process.wait()
    assert kernel_status(process.pid) == GONE == sample([process.pid])[process.pid].status


def looks(monkeypatch, *times, status="S"):
    """A process that does nothing at all, looked at at these moments."""
    clock = [times[0]]
    monkeypatch.setattr("ddpnb.ranks.process_samples.time.monotonic", lambda: clock[0])
    tracker = ActivityTracker()
    for clock[0] in times:
        tracker.add(ProcessSample(status, 1.0))
    return tracker


def test_time_in_which_nobody_looked_is_not_idle(monkeypatch):
    every = [number / 10 for number in range(31)]
    assert looks(monkeypatch, *every).idle_s > 2
    paused = [*every[:11], *(4 + moment for moment in every[1:6])]  # the machine stood still for three seconds
    assert looks(monkeypatch, *paused).idle_s < 2


def test_a_process_that_gets_no_core_is_not_idle(monkeypatch):
    every = [number / 10 for number in range(31)]
    assert looks(monkeypatch, *every, status="R").idle_s < 0.2


def test_the_queue_for_a_core_is_read_where_the_host_tells():
    told = process_samples.queued(os.getpid())
    assert told is None or (told[0] > 0 and told[1] >= 0)
    assert process_samples.queued(2**31 - 1) is None
