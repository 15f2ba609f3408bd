"""A neighbour in the network, or an agent of another user: what a job listens on beside torch's own sockets."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

_SCRIPT = """
import json, os, psutil, torch.distributed as dist

def listens(process):
    return [list(one.laddr) for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN]

before = listens(psutil.Process())
dist.init_process_group("gloo")
above = [one for one in psutil.Process().parents() if "ddpnb" in " ".join(one.cmdline())]
if dist.get_rank() == 0:
    print(json.dumps([before, len(above), [listens(one) for one in above]]), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.full
@pytest.mark.parametrize("how", [("-n", "2"), ("-n", "2", "--fork")], ids=" ".join)
def test_a_job_listens_on_no_port_but_those_of_torch(how, tmp_path):
    """Requests come through a Unix socket in a private folder."""
    script = tmp_path / "listens.py"
    script.write_text(_SCRIPT)
    done = subprocess.run(  # noqa: PLW1510
        [sys.executable, "-m", "ddpnb", "run", *how, script], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    before, launchers, above = json.loads(done.stdout.partition("] ")[2])
    assert (before, any(above)) == ([], False) and launchers
