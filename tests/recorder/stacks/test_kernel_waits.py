"""What other processes wait for in the kernel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from ddpnb.recorder.stacks.kernel_waits import lock_holders, system_call, waits_for_itself, words

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("time.sleep(60)", "sleep()"),
        ("threading.Lock().acquire() and (lock := threading.Lock()).acquire() and lock.acquire()", "a lock"),
        ("sys.stdin.read()", "(standard input)"),
        ("subprocess.run(['sleep', '60'])", "a child process"),
    ],
)
def test_what_a_process_waits_for(code, says):
    command = [sys.executable, "-c", f"import subprocess, sys, threading, time; {code}"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        deadline = time.monotonic() + 240
        while says not in (told := words(*system_call(process.pid), str(process.pid))):
            assert time.monotonic() < deadline, told
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=240)


def test_a_process_that_is_not_there():
    assert system_call(1 << 22) == ("", [])
    assert words("", []) == words("futex_unknown", [1]) == ""


FORKED = """
import os, signal, sys, threading, time
lock = threading.Lock()
def hold():
    with lock:
        time.sleep(60)
threading.Thread(target=hold, daemon=True).start()
while not lock.locked():
    time.sleep(0.01)
if os.fork() == 0:
    print(os.getpid(), flush=True)
    {within}
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("within", "never"),
    [
        ("lock.acquire()", True),
        ("lock.acquire(timeout=50)", False),
        ("signal.signal(signal.SIGUSR1, lambda *_: lock.release()); lock.acquire()", False),
        ("threading.Thread(target=time.sleep, args=(50,)).start(); lock.acquire()", False),
        ("time.sleep(50)", False),
    ],
    ids=["a lock that was held at the fork", "with a time-out", "with a handler", "with another thread", "sleep"],
)
def test_a_process_that_only_it_could_wake(within, never):
    command = [sys.executable, "-W", "ignore", "-c", FORKED.format(within=within)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        pid = int(process.stdout.readline())
        deadline = time.monotonic() + 240
        while system_call(pid)[0] not in ("futex", "clock_nanosleep") or (never and not waits_for_itself(pid)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.1)  # it may wait for the interpreter at first
        assert waits_for_itself(pid) is never
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=240)


@pytest.mark.parametrize("how", ["flock", "lockf"])
def test_who_holds_the_file_lock_that_a_process_waits_for(how, tmp_path):
    path = str(tmp_path / "lock")
    code = f"import fcntl, time; f = open({path!r}, 'w'); fcntl.{how}(f, fcntl.LOCK_EX); print(1, flush=True); time.sleep(60)"
    started = []
    try:
        for _ in range(2):
            started.append(
                subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
            )
            if len(started) == 1:
                started[0].stdout.readline()
        holder, waits = (process.pid for process in started)
        deadline = time.monotonic() + 240
        while not (held := lock_holders(*system_call(waits), str(waits))):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert held == [holder] and lock_holders(*system_call(holder), str(holder)) == []
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=240)
