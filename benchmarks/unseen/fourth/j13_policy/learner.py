import torch
from torch.nn.parallel import DistributedDataParallel as DDP

GAMMA = 0.95


def plain(net):
    return net.module if isinstance(net, DDP) else net


class Learner:
    def __init__(self, actor, env, lr, horizon=12, passes=3):
        self.net = plain(actor)
        self.env = env
        self.horizon, self.passes = horizon, passes
        self.optim = torch.optim.Adam(actor.parameters(), lr=lr)

    @torch.no_grad()
    def rollout(self):
        obs, steps = self.env.reset(), []
        for _ in range(self.horizon):
            action = self.net.act(obs)
            after, reward = self.env.step(action)
            steps.append((obs, action, reward))
            obs = after
        returns, acc = [], torch.zeros(len(obs))
        for _, _, reward in reversed(steps):
            acc = reward + GAMMA * acc
            returns.insert(0, acc)
        o, a, _ = zip(*steps)
        return torch.cat(o), torch.cat(a), torch.cat(returns)

    def update(self, obs, action, returns):
        logits, value = self.net(obs)
        adv = (returns - value).detach()
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        logp = logits.gather(1, action.unsqueeze(1)).squeeze(1)
        loss = -(logp * adv).mean() + 0.5 * (value - returns).pow(2).mean()
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()

    def iterate(self):
        obs, action, returns = self.rollout()
        for _ in range(self.passes):
            self.update(obs, action, returns)
        return returns.mean().item()
