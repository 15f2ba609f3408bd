# expect: DDP411
# ranks: 2 4
# culprits: 0
# outcome: hang
# plain: T
"""Before training rank 0 sends a batch through the model and prints the shapes."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
RANK = dist.get_rank()


def describe(model, x):
    out = model(x)  # <- culprit
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{tuple(x.shape)} -> {tuple(out.shape)}, {parameters} parameters")


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(10, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 5))
model = DDP(net)
if RANK == 0:  # <- culprit
    describe(model, torch.randn(8, 10))  # <- culprit

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(RANK)
for step in range(5):
    x, y = torch.randn(8, 10), torch.randint(0, 5, (8,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
