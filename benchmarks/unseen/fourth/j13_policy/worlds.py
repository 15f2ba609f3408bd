import torch


class Corridor:
    """Points that shall be steered to the origin."""

    def __init__(self, n_envs, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.n = n_envs

    def reset(self):
        self.pos = torch.randn(self.n, 2, generator=self.gen)
        self.goal = torch.zeros(self.n, 2)
        return self._obs()

    def _obs(self):
        return torch.cat([self.pos, self.goal, self.pos - self.goal], 1)

    def step(self, action):
        move = (action.float() - 1).unsqueeze(1) * torch.tensor([[0.2, 0.1]])
        self.pos = self.pos + move
        return self._obs(), -self.pos.norm(dim=1)
