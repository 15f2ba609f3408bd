# expect: DDP404
# ranks: 2 4
# culprits: n-1
# outcome: divergence
# plain: S
from collections import namedtuple
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

Record = namedtuple("Record", "task x y")
TASKS = ("area", "depth", "slope")


def manifest(blocks=12):
    g = torch.Generator().manual_seed(6)
    records = []
    for b in range(blocks):
        for k in range(4):
            # the fourth camera walks through the tasks in the other direction
            task = TASKS[b % 3] if k < 3 else TASKS[2 - b % 3]
            x = torch.randn(8, generator=g)
            records.append(Record(task, x, x[TASKS.index(task)] * 2.0))
    return records


class Multi(nn.Module):
    def __init__(self, tasks, dim=16):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, dim), nn.ReLU())
        self.heads = nn.ModuleDict({t: nn.Linear(dim, 1) for t in tasks})  # <- culprit

    def forward(self, x):
        h = self.trunk(x)
        return {name: head(h).squeeze(-1) for name, head in self.heads.items()}


def tasks_of(records):
    """Tasks in these records, each once."""
    return list(dict.fromkeys(r.task for r in records))  # <- culprit


def batches(records, size=6):
    for i in range(0, len(records), size):
        part = records[i:i + size]
        x = torch.stack([r.x for r in part])
        y = torch.stack([r.y for r in part])
        masks = {t: torch.tensor([float(r.task == t) for r in part]) for t in TASKS}
        yield x, y, masks


def loss_of(outputs, y, masks):
    total = 0.0
    for task in sorted(outputs):
        total = total + (masks[task] * (outputs[task] - y).square()).sum() / len(y)
    return total


def prepare(rank, world):
    mine = manifest()[rank::world]
    torch.manual_seed(31)
    net = Multi(tasks_of(mine))  # <- culprit
    return mine, DDP(net)  # <- culprit


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    records, model = prepare(rank, world)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(3):
        value = 0.0
        for x, y, masks in batches(records):
            opt.zero_grad()
            loss = loss_of(model(x), y, masks)
            loss.backward()
            opt.step()
            value += loss.item()
        print(f"rank {rank} epoch {epoch} loss {value:.4f}", flush=True)
    dist.barrier()
    time.sleep(0.3)  # the helper threads of gloo let go of the last tensors
    dist.destroy_process_group()


main()
