import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributions import Categorical


class Agent(nn.Module):
    def __init__(self, obs=4, acts=4, hid=32):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(obs, hid), nn.Tanh(), nn.Linear(hid, acts))
        self.v = nn.Sequential(nn.Linear(obs, hid), nn.Tanh(), nn.Linear(hid, 1))

    def dist(self, obs):
        return Categorical(logits=self.pi(obs))


class PPO:
    def __init__(self, agent, lr=4e-3, clip=0.2, epochs=4, minibatches=2, target_kl=0.02):
        self.agent, self.clip = agent, clip
        self.epochs, self.minibatches, self.target_kl = epochs, minibatches, target_kl
        self.opt = torch.optim.Adam(agent.parameters(), lr=lr)

    def average_gradients(self):
        grads = torch.cat([p.grad.view(-1) for p in self.agent.parameters()])
        dist.all_reduce(grads)
        grads /= dist.get_world_size()
        at = 0
        for p in self.agent.parameters():
            p.grad.copy_(grads[at:at + p.numel()].view_as(p))
            at += p.numel()

    def update(self, obs, act, logp, ret):
        n = len(obs)
        with torch.no_grad():
            adv = ret - self.agent.v(obs).squeeze(-1)
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        kl = torch.zeros(())
        for _ in range(self.epochs):
            for idx in torch.randperm(n).chunk(self.minibatches):
                pi = self.agent.dist(obs[idx])
                log_ratio = pi.log_prob(act[idx]) - logp[idx]
                ratio = log_ratio.exp()
                with torch.no_grad():
                    kl = ((ratio - 1) - log_ratio).mean()
                surrogate = torch.max(-adv[idx] * ratio, -adv[idx] * ratio.clamp(1 - self.clip, 1 + self.clip))
                v_loss = (self.agent.v(obs[idx]).squeeze(-1) - ret[idx]).pow(2).mean()
                loss = surrogate.mean() + 0.25 * v_loss - 0.01 * pi.entropy().mean()
                self.opt.zero_grad()
                loss.backward()
                self.average_gradients()
                self.opt.step()
            if self.target_kl is not None and kl > self.target_kl:
                break
        return kl.item()
