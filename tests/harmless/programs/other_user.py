"""Ranks that lay down their rights before they make a group. Only root can."""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.optim.SGD([torch.zeros(1)]).step()  # whatever is imported late, from folders that others may not read
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 2))
for step in range(3):
    loss = model(torch.full((2, 4), float(2 * step + dist.get_rank()))).square().mean()
    loss.backward()
    print(f"rank {dist.get_rank()} step {step}: {loss.item().hex()}", flush=True)
print(os.geteuid(), os.getegid(), os.getgroups(), flush=True)
time.sleep(0.5)  # gloo's threads let go of the last tensors: an interpreter that ends meanwhile is aborted
dist.destroy_process_group()
