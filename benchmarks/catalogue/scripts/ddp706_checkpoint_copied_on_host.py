# expect: DDP706
# ranks: 2 4
# culprits: 0
# outcome: crash
# plain: R
# needs: memory-group
"""Before each save the state is copied to the host's memory, again and again, and rank 0 has no room for it."""

import os
import pathlib

import torch
import torch.distributed as dist


def limited(megabytes):
    root = pathlib.Path("/sys/fs/cgroup/memory")
    limit = "memory.limit_in_bytes" if root.is_dir() else "memory.max"
    group = (root if root.is_dir() else root.parent) / f"job-{os.getpid()}"
    group.mkdir()
    (group / limit).write_text(str(megabytes << 20))
    (group / "cgroup.procs").write_text(str(os.getpid()))


dist.init_process_group("gloo")
rank = dist.get_rank()
state = {f"layer{n}": torch.ones(2 << 20) for n in range(8)}
copies = []
if rank == 0:
    limited(200)
for step in range(6):
    for tensor in state.values():
        dist.broadcast(tensor, src=0)  # <- culprit
    if rank == 0:
        copies.append({name: tensor.clone() for name, tensor in state.items()})  # <- culprit
dist.destroy_process_group()
