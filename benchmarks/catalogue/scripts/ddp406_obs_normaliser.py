# expect: DDP406
# ranks: 2 4
# culprits: any
# outcome: divergence
# plain: S
"""Policy gradient on a toy environment; observations are normalised with running statistics."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class RunningNorm(nn.Module):
    def __init__(self, dim, eps=1e-4):
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("var", torch.ones(dim))
        self.register_buffer("count", torch.tensor(eps))

    @torch.no_grad()
    def update(self, x):
        n = x.shape[0]
        delta = x.mean(0) - self.mean
        total = self.count + n
        m2 = self.var * self.count + x.var(0, unbiased=False) * n + delta**2 * self.count * n / total
        self.mean += delta * n / total  # <- culprit
        self.var.copy_(m2 / total)  # <- culprit
        self.count.copy_(total)

    def forward(self, x):
        if self.training:
            self.update(x)
        return (x - self.mean) / (self.var + 1e-8).sqrt()


class Policy(nn.Module):
    def __init__(self, obs=5, act=3):
        super().__init__()
        self.norm = RunningNorm(obs)
        self.pi = nn.Sequential(nn.Linear(obs, 16), nn.Tanh(), nn.Linear(16, act))

    def forward(self, obs):
        return torch.distributions.Categorical(logits=self.pi(self.norm(obs)))


class Env:
    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.scale = 1.0 + seed

    def rollout(self, n=20):
        obs = torch.randn(n, 5, generator=self.g) * self.scale + offset(self.scale)
        return obs, obs.sum(1)


def offset(scale):
    return 0.5 * scale


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    # one all-reduce per step is all we want to pay for
    policy = DDP(Policy(), broadcast_buffers=False)  # <- culprit
    opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
    env = Env(rank)
    for it in range(10):
        obs, ret = env.rollout()
        d = policy(obs)
        a = d.sample()
        adv = (ret - ret.mean()) * (a - 1).float()
        loss = -(d.log_prob(a) * adv).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    policy.eval()
    with torch.no_grad():
        probe = policy.module(torch.ones(1, 5)).probs
    if rank == 0:
        print("action probabilities", probe)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
