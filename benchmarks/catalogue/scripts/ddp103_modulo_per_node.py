# expect: DDP103
# ranks: 2 4
# culprits: range(n // 2, n)
# outcome: hang
# plain: T
"""Two machines with the same number of processes; the machine's index was forgotten."""

import os

import torch
import torch.distributed as dist

WORLD = int(os.environ["WORLD_SIZE"])
PER_NODE = WORLD // 2


def global_rank(process):
    local = process % PER_NODE
    node = int(os.environ.get("NODE_RANK", "0"))
    return node * PER_NODE + local  # <- culprit


def power_iteration(matrix, rounds=6):
    vector = torch.ones(matrix.shape[1])
    for _ in range(rounds):
        vector = matrix.T @ (matrix @ vector)
        dist.all_reduce(vector)
        vector /= vector.norm()
    return vector


rank = global_rank(int(os.environ["RANK"]))
dist.init_process_group("gloo", rank=rank, world_size=WORLD)  # <- culprit
print(rank, power_iteration(torch.randn(30, 5))[:2])
dist.destroy_process_group()
