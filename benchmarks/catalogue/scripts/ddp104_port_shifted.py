# expect: DDP104
# also: DDP101
# ranks: 2 4
# culprits: 1
# outcome: hang
# plain: T
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["RANK"])
if rank == 1:
    # "29500 was taken on this host yesterday"
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 37)  # <- culprit

dist.init_process_group("gloo")  # <- culprit

model = DistributedDataParallel(nn.Sequential(nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2)))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(5):
    signal, label = torch.randn(8, 1, 10), torch.randint(0, 2, (8,))
    opt.zero_grad()
    nn.functional.cross_entropy(model(signal), label).backward()
    opt.step()
if rank == 0:
    print("done")
dist.destroy_process_group()
