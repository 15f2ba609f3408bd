# expect: DDP502
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Four epochs on blobs with a distributed sampler."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)

centres = torch.randn(4, 6) * 3
label = torch.arange(128) % 4
dataset = TensorDataset(centres[label] + torch.randn(128, 6), label)

sampler = DistributedSampler(dataset, shuffle=True)  # <- culprit
loader = DataLoader(dataset, batch_size=8, sampler=sampler)

model = DDP(nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loss_fn = nn.CrossEntropyLoss()

for epoch in range(4):  # <- culprit
    for x, y in loader:  # <- culprit
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(f"epoch {epoch}: loss {loss.item():.4f}")

dist.destroy_process_group()
