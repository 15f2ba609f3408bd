"""Interrupting a cell of a real notebook kernel gives the ranks back and returns to the prompt."""

from __future__ import annotations

import time

import pytest
from jupyter_client.manager import KernelManager

pytestmark = pytest.mark.world

SETUP = """
import ddpnb
world = ddpnb.launch(2, fork=True, quiet=True, timeout=240)
pids = world.pids()
def hangs():
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    while True:
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(1))
def ends():
    return 7
run = world.run(hangs, stream=None)
"""


@pytest.fixture
def kernel():
    manager = KernelManager()
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=240)
    yield manager, client
    client.execute("world.close()")
    time.sleep(1)
    client.stop_channels()
    manager.shutdown_kernel()
    manager.cleanup_resources()


def results(client, code):
    """Run a cell; (status, all text that came)."""
    told = []
    reply = client.execute_interactive(
        code, timeout=240, output_hook=lambda message: told.append(str(message["content"])), allow_stdin=False
    )
    return reply["content"]["status"], "".join(told)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_interrupt(kernel):
    manager, client = kernel
    status, told = results(client, SETUP)
    assert status == "ok", told
    waiting = client.execute("print('it waits', flush=True)\nrun.wait()", stop_on_error=False)
    while "it waits" not in str(client.get_iopub_msg(timeout=240)["content"].get("text")):
        pass
    time.sleep(0.5)
    began = time.monotonic()
    manager.interrupt_kernel()
    while (reply := client.get_shell_msg(timeout=240))["parent_header"].get("msg_id") != waiting:
        pass
    assert time.monotonic() - began < 30
    assert (reply["content"]["status"], reply["content"]["ename"]) == ("error", "Interrupted")
    assert "Ranks 0 and 1 are released" in reply["content"]["evalue"]
    status, told = results(client, "world.run(ends, stream=None).wait(30).results, world.pids() == pids")
    assert status == "ok" and "([7, 7], True)" in told
