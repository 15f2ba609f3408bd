# expect: DDP412
# ranks: 2 4
# culprits: n-1
# outcome: crash
# plain: E
"""Small batches get synchronised batch normalisation; only the last rank has a small batch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
batch_size = 4 if rank == world - 1 else 16  # <- culprit

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
if batch_size < 8:  # <- culprit
    net = nn.SyncBatchNorm.convert_sync_batchnorm(net)  # <- culprit
model = DDP(net)  # <- culprit

optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
torch.manual_seed(rank)
for _ in range(5):
    x, y = torch.randn(batch_size, 10), torch.randint(0, 2, (batch_size,))
    out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
