"""What other processes wait for in the kernel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from ddpnb.recorder.kernel_waits import system_call, words

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
        deadline = time.monotonic() + 20
        while says not in (told := words(*system_call(process.pid), str(process.pid))):
            assert time.monotonic() < deadline, told
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=10)


def test_a_process_that_is_not_there():
    assert system_call(1 << 22) == ("", [])
    assert words("", []) == words("futex_unknown", [1]) == ""
