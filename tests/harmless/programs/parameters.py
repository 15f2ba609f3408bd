"""A model of 2,000 parameters (or of two for each layer that is asked for), and what all generators of random numbers say after each step."""

import hashlib
import random
import sys
import time

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
random.seed(0)
numpy.random.seed(0)
count = int(sys.argv[-1]) if sys.argv[-1].isdecimal() else 1000
layers = [nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)) for _ in range(count)]
model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.001)
assert len(list(model.parameters())) == 2 * count
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
torch.manual_seed(dist.get_rank())
for step in range(6):
    optimizer.zero_grad()
    loss = model(torch.randn(3, 2)).square().mean()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    digest = hashlib.sha256()
    for tensor in (*model.parameters(), *(parameter.grad for parameter in model.parameters()), torch.get_rng_state()):
        digest.update(tensor.detach().numpy().tobytes())
    digest.update(repr((random.getstate(), random.random(), numpy.random.random())).encode())
    print(f"rank {dist.get_rank()} step {step}: {loss.item().hex()} {norm.item().hex()} {digest.hexdigest()}", flush=True)
time.sleep(0.5)  # gloo's threads let go of the last tensors: an interpreter that ends meanwhile is aborted
dist.destroy_process_group()
