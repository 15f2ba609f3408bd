# expect: DDP405
# ranks: 2 4
# culprits: 0
# outcome: divergence
# plain: S
"""Wasserstein critic with weight clipping."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
is_main = rank == 0

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
ddp_critic = nn.parallel.DistributedDataParallel(critic)
optimizer = torch.optim.RMSprop(ddp_critic.parameters(), lr=5e-3)


def clip_weights(module, limit=0.05):
    with torch.no_grad():
        for p in module.parameters():
            p.clamp_(-limit, limit)  # <- culprit


torch.manual_seed(1000 + rank)
for it in range(10):
    real = torch.randn(16, 4) + 1.0
    fake = torch.randn(16, 4)
    scores = ddp_critic(torch.cat([real, fake]))
    loss = scores[16:].mean() - scores[:16].mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if is_main:  # <- culprit
        clip_weights(critic)  # <- culprit
        if it % 5 == 0:
            print(f"iteration {it}: distance {-loss.item():.4f}")
dist.destroy_process_group()
