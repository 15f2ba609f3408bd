# expect: DDP407
# ranks: 2 4
# culprits: range(n)
# outcome: divergence
# plain: S
"""A wrapper that makes the attributes of the inner module visible again, and its call too."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Transparent:
    """Looks like the network, so the rest of the code need not know about DDP."""

    def __init__(self, ddp):
        self._ddp = ddp

    def __getattr__(self, name):
        return getattr(self._ddp.module, name)

    def __call__(self, *args):
        return self.forward(*args)  # <- culprit


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRUCell(3, 8)
        self.out = nn.Linear(8, 2)

    def initial_state(self, batch):
        return torch.zeros(batch, 8)

    def forward(self, obs, state):
        state = self.gru(obs, state)
        return self.out(state), state


dist.init_process_group("gloo")
torch.manual_seed(0)
policy = Transparent(DistributedDataParallel(Policy()))  # <- culprit
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
torch.manual_seed(50 + dist.get_rank())
for episode in range(8):
    state = policy.initial_state(4)
    loss = 0.0
    for _ in range(3):
        obs = torch.randn(4, 3)
        action, state = policy(obs, state)  # <- culprit
        loss = loss + (action - obs[:, :2]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
