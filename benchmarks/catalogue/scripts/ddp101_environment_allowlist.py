# expect: DDP101
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: E
"""The newest machine of the cluster starts jobs with a cleaned environment."""

import os

import torch
import torch.distributed as dist

KEEP = {"PATH", "HOME", "USER", "LANG", "TMPDIR", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT"}


class Node:
    def __init__(self, rank, size):
        self.rank = rank
        self.hardened = rank == size - 1  # only the last machine was set up with the new image

    def clean_environment(self):
        if not self.hardened:
            return
        for name in list(os.environ):
            if name not in KEEP:
                del os.environ[name]  # <- culprit


node = Node(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
node.clean_environment()
dist.init_process_group("gloo")  # <- culprit

weights = torch.zeros(8)
for _ in range(3):
    gradient = torch.randn(8)
    dist.all_reduce(gradient)
    weights -= 0.1 * gradient / dist.get_world_size()
print("rank", node.rank, "done", weights.norm().item())
dist.destroy_process_group()
