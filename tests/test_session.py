"""A session of pytest that is interrupted leaves nothing of what its tests have started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import alive

# As one that waits for torchrun: it is killed, and its ranks have sessions of their own.
WAITS = """
import subprocess
def test_waits():
    subprocess.run(["sh", "-c", "setsid sleep 600 & echo $! > new && mv new pid; wait"])
"""


@pytest.mark.full
def test_what_a_test_waits_for_ends_with_an_interrupted_session(tmp_path):
    (tmp_path / "test_waits.py").write_text(WAITS)
    (tmp_path / "pytest.ini").touch()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "test_waits.py"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as session:
        deadline = time.monotonic() + 240
        while not (tmp_path / "pid").exists():
            assert session.poll() is None and time.monotonic() < deadline, session.communicate()[0]
            time.sleep(0.02)
        session.send_signal(signal.SIGINT)
        said = session.communicate(timeout=240)[0]
    assert (session.returncode, "KeyboardInterrupt" in said) == (2, True), said
    assert not alive(int((tmp_path / "pid").read_text()))
