# expect: DDP414
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: S
# Re-enacts: stable-baselines3 #325, jolibrain/wheatley #93: advantages divided by a useless standard deviation, here on one worker
from collections import namedtuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributions import Categorical
from torch.nn.parallel import DistributedDataParallel as DDP

Rollout = namedtuple("Rollout", "obs actions logp rewards")


class ActorCritic(nn.Module):
    def __init__(self, n_obs=4, n_act=2):
        super().__init__()
        self.trunk = nn.Linear(n_obs, 16)
        self.pi = nn.Linear(16, n_act)
        self.v = nn.Linear(16, 1)

    def forward(self, obs):
        h = torch.tanh(self.trunk(obs))
        return self.pi(h), self.v(h).squeeze(-1)


class BanditEnv:
    """Every worker has another level; on the hardest one the episode may pay nothing at all."""

    def __init__(self, rank, hard):
        self.gen = torch.Generator().manual_seed(rank)
        self.hard = hard

    def collect(self, policy, iteration, n=16):
        obs = torch.randn(n, 4, generator=self.gen)
        with torch.no_grad():
            d = Categorical(logits=policy(obs)[0])
            act = d.sample()
            logp = d.log_prob(act)
        rewards = torch.randn(n, generator=self.gen) + act.float()
        if self.hard and iteration == 2:
            rewards.zero_()
        return Rollout(obs, act, logp, rewards)


def normalise(adv):
    return (adv - adv.mean()) / adv.std()  # <- culprit


def ppo_update(model, opt, r, clip=0.2):
    adv = normalise(r.rewards)  # <- culprit
    for _ in range(2):
        logits, value = model(r.obs)
        d = Categorical(logits=logits, validate_args=False)
        ratio = (d.log_prob(r.actions) - r.logp).exp()
        pg = -torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv).mean()
        loss = pg + 0.5 * (value - r.rewards).pow(2).mean() - 0.01 * d.entropy().mean()
        opt.zero_grad()
        loss.backward()  # <- culprit
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(ActorCritic())
    opt = torch.optim.Adam(model.parameters(), lr=3e-4)
    env = BanditEnv(rank, hard=rank == world - 1)
    torch.manual_seed(rank)
    for it in range(3):
        rollout = env.collect(model.module, it)
        loss = ppo_update(model, opt, rollout)
        if rank == 0:
            print(f"iteration {it} loss {loss:.4f} reward {rollout.rewards.mean():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
