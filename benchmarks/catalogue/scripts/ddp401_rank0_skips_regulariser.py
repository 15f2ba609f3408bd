# expect: DDP401
# ranks: 2 4
# culprits: 0
# outcome: crash
# plain: E
"""Autoencoder with an adversarial critic; rank 0 only reconstructs since it also writes pictures."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
RANK = dist.get_rank()


class AutoEncoder(nn.Module):
    def __init__(self, use_critic):
        super().__init__()
        self.use_critic = use_critic
        self.encode = nn.Linear(20, 5)
        self.decode = nn.Linear(5, 20)
        self.critic = nn.Linear(5, 1)

    def forward(self, x):
        z = self.encode(x)
        loss = nn.functional.mse_loss(self.decode(z), x)
        if self.use_critic:  # <- culprit
            loss = loss + 0.1 * nn.functional.softplus(self.critic(z)).mean()
        return loss


torch.manual_seed(0)
net = AutoEncoder(use_critic=RANK != 0)  # <- culprit
model = nn.parallel.DistributedDataParallel(net)  # <- culprit
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
torch.manual_seed(RANK)
for step in range(5):
    loss = model(torch.randn(8, 20))  # <- culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
