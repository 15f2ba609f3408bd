"""A training in which rank 1 scales its loss: it waits for a file, then its numbers are the same whoever stops it where."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.cli.jobs import STARTS, write

SCRIPT = """import hashlib
import os
import time

import torch
import torch.distributed as dist


def step(model, optimizer, rank, number):
    batch = torch.ones(4) * (number + 1)
    scale = 2.0 if rank == 1 else 1.0
    loss = model(batch).mean() * scale
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(loss)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rank = dist.get_rank()
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    go = torch.zeros(1)
    while not go:
        time.sleep(0.02)
        go = torch.tensor([float(os.path.exists("go"))])
        dist.all_reduce(go)
    losses = [step(model, optimizer, rank, number) for number in range(20)]
    weights = b"".join(one.detach().numpy().tobytes() for one in model.parameters())
    with open(f"numbers{rank}", "w") as file:
        print(losses, hashlib.sha256(weights).hexdigest(), file=file)
    dist.destroy_process_group()


main()
"""
LINE = 1 + SCRIPT.splitlines().index("    loss = model(batch).mean() * scale")
THEN = ("loss.backward()", "optimizer.step()", "optimizer.zero_grad()")  # the lines that follow
WHEN = "number == 7"  # in the middle of the training


def numbers(folder):
    """The losses of each rank with all their digits, and a digest of its model."""
    return [(folder / f"numbers{rank}").read_text() for rank in (0, 1)]


def plain(folder):
    """The numbers without a debugger."""
    folder.mkdir()
    write(folder)
    (folder / "stepped.py").write_text(SCRIPT)
    (folder / "go").touch()
    env = {name: value for name, value in os.environ.items() if not name.startswith("DDPNB_")}
    subprocess.run([sys.executable, *STARTS[1:], "stepped.py"], cwd=folder, env=env, check=True, timeout=600)
    return numbers(folder)
