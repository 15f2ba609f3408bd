"""Programs and machines that misbehave, under ddpnb run: what they see is what torchrun shows."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cli.jobs import TORCHRUN

# What daemonising code does, before and after the process group is made: all descriptors are closed, and the program
# listens on the numbers that it gets then. Whoever connects reaches the program and nobody else.
_CLOSES_ALL = """
import json, os, socket, struct, threading, time
import torch
import torch.distributed as dist

request = json.dumps({"verb": "evaluate", "facts": {"expression": "1", "timeout": 2.0}}).encode()

def listen():
    os.closerange(3, 1 << 14)
    return [socket.create_server(("127.0.0.1", 0)) for _ in range(12)]

def serve(servers):
    for server in servers:
        for _ in range(3):
            with server.accept()[0] as connection:
                connection.recv(1000)
                connection.sendall(b"mine")

for around in ("before", "after"):
    if around == "after":
        dist.init_process_group("gloo")
        dist.barrier()
        dist.destroy_process_group()
    servers = listen()
    thread = threading.Thread(target=serve, args=(servers,))
    thread.start()
    time.sleep(1)
    for server in servers:
        for _ in range(3):
            with socket.create_connection(server.getsockname(), timeout=20) as connection:
                connection.sendall(struct.pack("<I", len(request)) + request)
                assert connection.recv(100) == b"mine"
    thread.join()
    while servers:
        servers.pop().close()
    print(around, flush=True)
"""
_TRAINS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
model(torch.ones(1, 2)).sum().backward()
dist.destroy_process_group()
print("trained", flush=True)
"""
_HOW = pytest.mark.parametrize(
    "how", [["-n", "2"], ["-n", "2", "--fork"], ["--", *TORCHRUN]], ids=["n", "fork", "torchrun"]
)


@pytest.mark.full
@pytest.mark.parametrize("how", [["-n", "1"], ["--", *TORCHRUN[:-1], "1"]], ids=["n", "torchrun"])
def test_a_program_that_closes_all_descriptors(how, tmp_path):
    (tmp_path / "closes.py").write_text(_CLOSES_ALL)
    done = subprocess.run(
        [sys.executable, "-m", "ddpnb", "run", *how, "closes.py"], cwd=tmp_path, capture_output=True, text=True,
        check=False, timeout=240,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()[-3:].count("after")) == (0, 1), done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")
@_HOW
def test_a_machine_without_proc(how, tmp_path):
    (tmp_path / "trains.py").write_text(_TRAINS)
    steps = 'mount -t tmpfs none /proc && exec "$@"'
    command = [sys.executable, "-m", "ddpnb", "run", *how, "trains.py"]
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", steps, "bash", *command], cwd=tmp_path, capture_output=True, text=True,
        check=False, timeout=240,
    )  # fmt: skip
    assert (done.returncode, done.stdout.count("trained")) == (0, 2), done.stderr
    assert done.stderr.count("ddpnb: there is no /proc here") == 1


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")
def test_a_world_on_a_machine_without_proc(tmp_path):
    steps = 'mount -t tmpfs none /proc && exec "$@"'
    command = [sys.executable, "-m", "ddpnb", "doctor"]
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", steps, "bash", *command], cwd=tmp_path, capture_output=True, text=True,
        check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("ddpnb: there is no /proc here, without which ipyparallel starts no processes.")
