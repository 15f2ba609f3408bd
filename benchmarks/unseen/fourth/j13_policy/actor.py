import torch.nn as nn
from torch.distributions import Categorical


class Actor(nn.Module):
    def __init__(self, n_obs, n_act, width=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_obs, width), nn.Tanh())
        self.policy = nn.Linear(width, n_act)
        self.value = nn.Linear(width, 1)

    def forward(self, obs):
        h = self.body(obs)
        return Categorical(logits=self.policy(h)).logits, self.value(h).squeeze(-1)

    def act(self, obs):
        logits, _ = self(obs)
        return Categorical(logits=logits).sample()
