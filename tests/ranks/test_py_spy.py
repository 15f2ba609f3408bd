"""Stacks of real processes, read from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from ddpnb.errors import WorldError
from ddpnb.ranks import py_spy
from ddpnb.ranks.process_samples import sample
from ddpnb.ranks.py_spy import check_py_spy, children, described_stacks, py_spy_stacks
from ddpnb.recording.stacks import stacks_in

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def begun(code, **how):
    """A process whose program has printed a line, and a moment to go on to what follows."""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, **how)
    process.stdout.readline()
    time.sleep(0.2)
    return process


def test_py_spy_tells_what_a_silent_process_does():
    process = begun("import time\ndef rest():\n    time.sleep(60)\nprint(flush=True)\nrest()")
    try:
        stacks = py_spy_stacks(process.pid)
    finally:
        process.kill()
        process.communicate()
    assert stacks[0].main and stacks[0].innermost.function == "rest"
    assert py_spy_stacks(process.pid) == ()


@pytest.mark.parametrize(
    ("waits", "holds"), [("ctypes.PyDLL(None).sleep(60)", True), ("time.sleep(60)", False), ("while True: pass", False)]
)
def test_py_spy_tells_who_waits_with_the_interpreter_lock_held(waits, holds):
    code = f"import ctypes, threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint(flush=True)\n{waits}"
    process = begun(code)
    try:
        found = [any(stack.holds_lock for stack in py_spy_stacks(process.pid)) for _ in range(4)]
    finally:
        process.kill()
        process.communicate()
    # One that computes may be seen without a core on a busy machine, so all looks count together, as they do in a run.
    assert all(found) is holds


def test_what_the_children_of_a_process_do():
    code = """
import os, time
def serve():
    time.sleep(60)
def main():
    if os.fork() == 0:
        print(flush=True)
        serve()
    if os.fork() == 0:
        os._exit(0)
    time.sleep(60)
main()
"""
    process = begun(code, start_new_session=True)
    try:
        deadline = time.monotonic() + 240
        while {status for _, status in sample([process.pid])[process.pid].descendants} != {"S", "Z"}:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        descendants = sample([process.pid])[process.pid].descendants
        found = {child.status: child for child in children(descendants, 5.0)}
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert set(found) == {"S", "Z"}
    assert found["S"].stacks[0].innermost.function == "serve" and found["S"].idle_s == 5.0
    assert "-c" in found["S"].command and found["Z"].stacks == ()


def test_looking_at_children_is_bounded():
    descendants = [(os.getpid(), "Z")] * 100
    assert len(children(descendants, 1.0)) == 16


def test_stacks_are_described_as_a_rank_does_it():
    code = "import threading, time\ndef rest(step, held):\n    time.sleep(60)\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint(flush=True)\nrest(7, threading.Event())"
    process = begun(code)
    try:
        first, second = described_stacks(process.pid)
    finally:
        process.kill()
        process.communicate()
    assert (first["main"], second["main"]) == (True, False)
    assert first["frames"][-1] == {
        "file": "<string>", "line": 3, "function": "rest", "user": True, "locals": {"step": "7", "held": "<Event>"},
    }  # fmt: skip
    assert described_stacks(process.pid) == []


def test_a_file_of_another_python_is_no_users():
    users = ["/home/user/train.py", "/work/lib/python/train.py"]
    others = [
        "/opt/other/lib/python3.12/queue.py",
        "/x/dist-packages/torch/a.py",
        "/y/lib64/python3.13/site-packages/a.py",
    ]
    assert [py_spy._is_users(file) for file in (*users, *others)] == [True, True, False, False, False]


def test_a_process_that_can_be_read():
    process = begun("import time; print(flush=True); time.sleep(60)")
    try:
        check_py_spy(process.pid)
    finally:
        process.kill()
        process.communicate()
    with pytest.raises(WorldError, match=f"py-spy cannot read process {process.pid}: "):
        check_py_spy(process.pid)


def test_py_spy_is_missing(monkeypatch):
    monkeypatch.setattr(py_spy, "_command", lambda: None)
    with pytest.raises(WorldError, match="py-spy is missing") as refused:
        check_py_spy(os.getpid())
    assert "pip install py-spy" in refused.value.hint
    assert described_stacks(os.getpid()) == [] and py_spy_stacks(os.getpid()) == ()


def test_the_kernel_refuses(monkeypatch, tmp_path):
    """What py-spy says where ptrace is restricted; this machine may not refuse it."""
    refusing = tmp_path / "py-spy"
    refusing.write_text(
        "#!/bin/sh\necho 'Permission Denied: Try running again with elevated permissions' >&2\nexit 1\n"
    )
    refusing.chmod(0o755)
    monkeypatch.setattr(py_spy, "_command", lambda: str(refusing))
    with pytest.raises(WorldError, match="Permission Denied: Try running again") as refused:
        check_py_spy(os.getpid())
    assert "kernel.yama.ptrace_scope=0" in refused.value.hint


@pytest.mark.parametrize(
    "said", ["", "[]", "3", "[1, {}]", '[{"frames": [1, {}], "thread_id": "x"}]', "{", "[" * 100_000]
)
def test_what_py_spy_says_may_be_anything(said, monkeypatch, tmp_path):
    (tmp_path / "said").write_text(said)
    other = tmp_path / "py-spy"
    other.write_text(f"#!/bin/sh\ncat {tmp_path}/said\n")
    other.chmod(0o755)
    monkeypatch.setattr(py_spy, "_command", lambda: str(other))
    for stack in (*py_spy_stacks(4711), *stacks_in(described_stacks(4711))):
        assert all(frame.file == "?" for frame in stack.frames)
