import torch
import torch.nn as nn
from torch.distributions import Normal


class Actor(nn.Module):
    def __init__(self, obs, act):
        super().__init__()
        self.mu = nn.Sequential(nn.Linear(obs, 32), nn.Tanh(), nn.Linear(32, act, bias=False))
        self.std = 0.8

    def forward(self, obs):
        return self.mu(obs), self.std


def log_prob(actor, obs, act):
    mu, std = actor(obs)
    return Normal(mu, std).log_prob(act).sum(-1)


class PPO:
    def __init__(self, actor, lr=3e-2, clip=0.2, target_kl=0.01, epochs=4, minibatch=32):
        self.actor, self.clip, self.target_kl = actor, clip, target_kl
        self.epochs, self.minibatch = epochs, minibatch
        self.opt = torch.optim.SGD(actor.parameters(), lr=lr)

    def loss(self, new, old, adv):
        ratio = (new - old).exp()
        return -torch.min(ratio * adv, ratio.clamp(1 - self.clip, 1 + self.clip) * adv).mean()

    @staticmethod
    def drift(new, old):
        log_ratio = (new - old).detach()
        return (log_ratio.exp() - 1 - log_ratio).mean().item()

    def update(self, obs, act, adv):
        with torch.no_grad():
            old = log_prob(self.actor, obs, act)
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        taken = 0
        for _ in range(self.epochs):
            for idx in torch.arange(len(obs)).split(self.minibatch):
                new = log_prob(self.actor, obs[idx], act[idx])
                if self.drift(new, old[idx]) > 1.5 * self.target_kl:
                    return taken
                self.opt.zero_grad()
                self.loss(new, old[idx], adv[idx]).backward()
                nn.utils.clip_grad_norm_(self.actor.parameters(), 1.0)
                self.opt.step()
                taken += 1
        return taken
