# expect: DDP102
# ranks: 2
# culprits: [n-1]
# outcome: hang
# plain: T
# Re-enacts: issue where one more process was launched than there are devices; the spare one leaves quietly at once.
import os
import sys
import torch
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

local_rank = int(os.environ["LOCAL_RANK"])
local_world = int(os.environ["LOCAL_WORLD_SIZE"])

# the machine's inventory lists the accelerators we may use (this box: one fewer than last week)
INVENTORY = [f"slot{i}" for i in range(local_world - 1)]


def pick_slot():
    if local_rank >= len(INVENTORY):  # <- culprit
        print(f"local rank {local_rank}: no slot for me, leaving")
        sys.exit(0)  # <- culprit
    return INVENTORY[local_rank]


def train(steps=4):
    slot = pick_slot()  # <- culprit
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    print(f"rank {rank} on {slot}")
    torch.manual_seed(5)
    model = DDP(torch.nn.Linear(6, 4))
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    g = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        x = torch.randn(8, 6, generator=g)
        y = torch.randint(0, 4, (8,), generator=g)
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
