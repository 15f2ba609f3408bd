"""Stacks of real processes, read from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from ddpnb.processes.process_samples import sample
from ddpnb.processes.py_spy import children, py_spy_stacks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


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
        descendants = sample([process.pid])[process.pid].descendants
        found = {child.status: child for child in children(descendants, 5.0)}
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert set(found) == {"S", "Z"}
    assert found["S"].stacks[0].innermost.function == "serve" and found["S"].idle_s == 5.0
    assert "-c" in found["S"].command and found["Z"].stacks == ()


def test_looking_at_children_is_bounded():
    descendants = [(os.getpid(), "Z")] * 100
    assert len(children(descendants, 1.0)) == 16
