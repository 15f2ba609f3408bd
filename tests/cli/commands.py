"""``ddpnb`` as a stranger types it, and what it leaves behind."""

from __future__ import annotations

import glob
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

import ddpnb as package
from ddpnb.cli import main
from tests.conftest import alive

DDPNB = [sys.executable, "-m", "ddpnb"]
_begun: list[subprocess.Popen[str]] = []


def ddpnb(*args, cwd=None, timeout=240, **more):
    return subprocess.run(
        [*DDPNB, *map(str, args)], capture_output=True, text=True, timeout=timeout, cwd=cwd, check=False, **more
    )


def refused(*args) -> int:
    """The exit status of a command that ends before it starts anything, in this process; an exception is none."""
    try:
        return main([*map(str, args)])
    except SystemExit as end:  # argparse
        return int(end.code or 0)


def begin(*args, cwd=None, output=subprocess.DEVNULL, own_group=False):
    """Start it as a person does, whose terminal ignores no signal: a shell's job in the background would ignore SIGINT.

    It is ended with the test (``end_begun``). ``own_group``: in a process group of its own, as a shell with job control does.
    """

    def usual():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)

    process = subprocess.Popen(
        [*DDPNB, *map(str, args)], stdout=output, stderr=subprocess.PIPE, text=True, cwd=cwd,
        preexec_fn=usual, start_new_session=own_group,  # noqa: PLW1509
    )  # fmt: skip
    _begun.append(process)
    return process


def said_until(process, words):
    """What it prints, up to the line with these words or to its end."""
    lines = []
    for line in process.stderr:
        lines.append(line)
        if words in line:
            break
    return "".join(lines)


def end_begun():
    """End what a test that failed has left running, with all its ranks: later tests would find them."""
    while _begun:
        process = _begun.pop()
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def assert_no_own_frames(text):
    """No line of a traceback is in the package; the environment may lie in a folder of the same name."""
    assert f"{Path(package.__file__).parent}{os.sep}" not in text, text


def family(process):
    return [child.pid for child in psutil.Process(process.pid).children(recursive=True)]


def assert_all_ended(process, children):
    deadline = time.monotonic() + 240
    while any(map(alive, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, children))
    assert left_by(process) == []


def left_by(process):
    """The folders of its worlds that are still there."""
    bases = (os.environ.get("DDPNB_SHM") or "/dev/shm", tempfile.gettempdir())
    pattern = f"ddpnb-{os.geteuid()}/ddpnb-{process.pid}-*"
    return [path for base in bases for path in glob.glob(os.path.join(base, pattern))]
