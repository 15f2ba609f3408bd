"""``ddpnb`` as a stranger types it, and what it leaves behind."""

from __future__ import annotations

import glob
import os
import signal
import subprocess
import sys
import tempfile
import time

import psutil

from ddpnb.cli import main
from tests.conftest import alive

DDPNB = [sys.executable, "-m", "ddpnb"]


def ddpnb(*args, cwd=None, timeout=60, **more):
    return subprocess.run(
        [*DDPNB, *map(str, args)], capture_output=True, text=True, timeout=timeout, cwd=cwd, check=False, **more
    )


def refused(*args) -> int:
    """The exit status of a command that ends before it starts anything, in this process; an exception is none."""
    try:
        return main([*map(str, args)])
    except SystemExit as end:  # argparse
        return int(end.code or 0)


def begin(*args, cwd=None, output=subprocess.DEVNULL):
    """Start it as a person does, whose terminal ignores no signal: a shell's job in the background would ignore SIGINT."""

    def usual():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    return subprocess.Popen(
        [*DDPNB, *map(str, args)], stdout=output, stderr=subprocess.PIPE, text=True, cwd=cwd,
        preexec_fn=usual,  # noqa: PLW1509
    )  # fmt: skip


def family(process):
    return [child.pid for child in psutil.Process(process.pid).children(recursive=True)]


def assert_all_ended(process, children):
    deadline = time.monotonic() + 5
    while any(map(alive, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, children))
    assert left_by(process) == []


def left_by(process):
    """The folders of its worlds that are still there."""
    bases = (os.environ.get("DDPNB_SHM") or "/dev/shm", tempfile.gettempdir())
    pattern = f"ddpnb-{os.geteuid()}/ddpnb-{process.pid}-*"
    return [path for base in bases for path in glob.glob(os.path.join(base, pattern))]
