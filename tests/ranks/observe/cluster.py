"""Jobs on two hosts that are one: a launcher as ``srun``, whose second host has another name and another clock."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

from ddpnb.ranks.observe import records

AHEAD_NS = 5_000 * 10**9  # by how much the clock of the second host is ahead
_SRUN = """
import os, signal, subprocess, sys
ranks = []
for rank in range(4):
    mine = {"RANK": str(rank), "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": os.environ["PORT"]}
    mine |= {"OTHER_HOST": "node/2", "MASTER_ADDR": "localhost"} if rank > 1 else {}
    ranks.append(subprocess.Popen(sys.argv[1:], env=os.environ | mine))
sys.exit(max(rank.wait() for rank in ranks))
"""
_HOST = f"""
import os, time
if "OTHER_HOST" in os.environ:
    here, now = os.uname(), time.monotonic_ns
    os.uname = lambda: os.uname_result((here[0], os.environ["OTHER_HOST"], *here[2:]))
    time.monotonic_ns = lambda: now() + {AHEAD_NS}
"""


def start(folder, script, *options):
    """Start a script on four ranks of two hosts, recorded in ``folder/records``."""
    (folder / "srun.py").write_text(_SRUN)
    (folder / "train.py").write_text(script)
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(_HOST)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": str(folder / "site"), "PORT": str(port), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(folder / "srun.py"), sys.executable, "train.py"]
    return subprocess.Popen(
        [sys.executable, "-m", "ddpnb", "run", "--record", "--dir", "records", *options, "--", *command],
        cwd=folder, env=environment, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def end(process):
    """Kill all processes of the job at once."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return process.communicate(timeout=240)


def wait_for(process, condition, seconds=240.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline, end(process)
        time.sleep(0.1)


def files(folder, name):
    return sorted((folder / "records").glob(f"host-*/*/{name}"))


def read(folder, patience=1.0):
    return records.read([folder], patience)
