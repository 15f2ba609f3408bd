import torch.nn as nn


class Generator(nn.Module):
    def __init__(self, z=8, out=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(z, 64), nn.ReLU(), nn.Linear(64, 64),
                                 nn.ReLU(), nn.Linear(64, out))

    def forward(self, z):
        return self.net(z)


class Critic(nn.Module):
    def __init__(self, inp=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inp, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)
