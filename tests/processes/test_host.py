"""Looks at real processes from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from ddpnb.processes.host import GONE, STOPPED, Sample, Watch, children, kernel_status, py_spy_stacks, sample, stopped

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def followed(code, seconds=1.6, before=lambda pid: None):
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        time.sleep(0.5)
        before(process.pid)
        watch = Watch()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            watch.take(sample([process.pid])[process.pid])
            time.sleep(0.05)
        return watch
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # with its children
        process.wait()


def test_computing():
    watch = followed("while True: pass")
    assert watch.activity == "computing" and watch.idle_s < 0.3


def test_idle():
    watch = followed("import time; time.sleep(60)")
    assert watch.activity == "idle" and watch.idle_s > 1


def test_a_computing_child_counts():
    watch = followed("import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])")
    assert watch.activity == "computing"


def test_writing_counts():
    """A checkpoint goes to a slow disk: little CPU, many bytes."""
    code = "import os, time\nf = open('/dev/null', 'wb', buffering=0)\nwhile True: f.write(bytes(1 << 16)); time.sleep(0.02)"
    assert followed(code).idle_s < 0.5


def test_stopped():
    assert (
        followed("import time; time.sleep(60)", before=lambda pid: os.kill(pid, signal.SIGSTOP)).activity == "stopped"
    )


def test_gone():
    process = subprocess.Popen(["true"])
    process.wait()
    assert sample([process.pid])[process.pid].status == "gone"


def test_py_spy_tells_what_a_silent_process_does():
    process = subprocess.Popen([sys.executable, "-c", "import time\ndef rest():\n    time.sleep(60)\nrest()"])
    try:
        time.sleep(0.5)
        stacks = py_spy_stacks(process.pid)
    finally:
        process.kill()
        process.wait()
    assert stacks[0].main and stacks[0].innermost.function == "rest"
    assert py_spy_stacks(process.pid) == ()


@pytest.mark.parametrize(
    ("waits", "holds"), [("ctypes.PyDLL(None).sleep(60)", True), ("time.sleep(60)", False), ("while True: pass", False)]
)
def test_py_spy_tells_who_waits_with_the_interpreter_lock_held(waits, holds):
    code = (
        f"import ctypes, threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n{waits}"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        time.sleep(1.0)
        found = [any(stack.holds_lock for stack in py_spy_stacks(process.pid)) for _ in range(4)]
    finally:
        process.kill()
        process.wait()
    # One that computes may be seen without a core on a busy machine, so all looks count together, as they do in a run.
    assert all(found) is holds


def test_the_kernels_status_of_one_process():
    process = subprocess.Popen(["sleep", "60"])
    try:
        assert kernel_status(process.pid) in ("S", "R", "D")
        process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + 10
        while kernel_status(process.pid) not in STOPPED and time.monotonic() < deadline:
            time.sleep(0.01)
        assert stopped({0: os.getpid(), 3: process.pid}) == [3]
        process.kill()
        while kernel_status(process.pid) != GONE and time.monotonic() < deadline:
            time.sleep(0.01)
        assert kernel_status(process.pid) == GONE  # a zombie still
    finally:
        process.kill()
        process.wait()
    assert kernel_status(process.pid) == GONE


def test_what_the_children_of_a_process_do():
    code = """
import os, time
def serve():
    time.sleep(60)
def main():
    if os.fork() == 0:
        serve()
    if os.fork() == 0:
        os._exit(0)
    time.sleep(60)
main()
"""
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        time.sleep(0.7)
        family = sample([process.pid])[process.pid].family
        found = {child.status: child for child in children(family, 5.0)}
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert set(found) == {"S", "Z"}
    assert found["S"].stacks[0].innermost.function == "serve" and found["S"].idle_s == 5.0
    assert "-c" in found["S"].command and found["Z"].stacks == ()


def test_looking_at_children_is_bounded():
    family = [(os.getpid(), "Z")] * 100
    assert len(children(family, 1.0)) == 16


def looks(monkeypatch, *times, status="S"):
    """A process that does nothing at all, looked at at these moments."""
    clock = [times[0]]
    monkeypatch.setattr("ddpnb.processes.host.time.monotonic", lambda: clock[0])
    watch = Watch()
    for clock[0] in times:
        watch.take(Sample(status, 1.0))
    return watch


def test_time_in_which_nobody_looked_is_not_idle(monkeypatch):
    every = [number / 10 for number in range(31)]
    assert looks(monkeypatch, *every).idle_s > 2
    paused = [*every[:11], *(4 + moment for moment in every[1:6])]  # the machine stood still for three seconds
    assert looks(monkeypatch, *paused).idle_s < 2


def test_a_process_that_gets_no_core_is_not_idle(monkeypatch):
    every = [number / 10 for number in range(31)]
    assert looks(monkeypatch, *every, status="R").idle_s < 0.2
