import torch

FLEET = ("meadow", "ridge", "coast")
GUST = {"meadow": 0.05, "ridge": 1.5, "coast": 1.8}


class GliderEnv:
    """A point glider; the wind differs from site to site."""

    obs_dim = 4
    n_actions = 3

    def __init__(self, index, batch=64):
        self.site = FLEET[index % len(FLEET)]
        self.gust = GUST[self.site]
        self.g = torch.Generator().manual_seed(500 + index)
        self.batch = batch

    def rollout(self, policy):
        obs = torch.randn(self.batch, self.obs_dim, generator=self.g) * self.gust
        with torch.no_grad():
            logp = policy(obs).log_softmax(-1)
        actions = torch.multinomial(logp.exp(), 1, generator=self.g).squeeze(-1)
        wanted = (obs[:, 0] > 0).long() + (obs[:, 1] > 0).long()
        return obs, actions, (actions == wanted).float(), logp
