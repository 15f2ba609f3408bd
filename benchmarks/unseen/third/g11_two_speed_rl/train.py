"""Bandit policy with two crews: simulators roll out many short episodes, critics fit a value model."""
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from crews import Crews, Telemetry

ROUNDS, ARMS, STATE = 6, 5, 8


def states(seed, n=24):
    return torch.randn(n, STATE, generator=torch.Generator().manual_seed(seed))


def reward(state, arm):
    return (state[:, :ARMS].gather(1, arm[:, None])).squeeze(1)


def average(params, group):
    size = dist.get_world_size(group)
    for p in params:
        dist.all_reduce(p.grad, group=group)
        p.grad /= size


def improve_policy(policy, value, opt, crew, seed):
    for episode in range(8):
        s = states(seed + episode)
        dist_ = torch.distributions.Categorical(logits=policy(s))
        torch.manual_seed(seed + episode)
        arm = dist_.sample()
        advantage = reward(s, arm) - value(s).detach().squeeze(1)
        opt.zero_grad()
        (-(dist_.log_prob(arm) * advantage).mean()).backward()
        average(policy.parameters(), crew)
        opt.step()


def fit_value(value, opt, crew, seed):
    for sweep in range(2):
        s = states(seed + sweep, n=64)
        time.sleep(0.05)  # the simulator of the plant is slow
        opt.zero_grad()
        F.mse_loss(value(s).squeeze(1), s[:, :ARMS].max(1).values).backward()
        average(value.parameters(), crew)
        opt.step()


def main():
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    policy = nn.Sequential(nn.Linear(STATE, 16), nn.Tanh(), nn.Linear(16, ARMS))
    value = nn.Sequential(nn.Linear(STATE, 16), nn.Tanh(), nn.Linear(16, 1))
    policy_opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
    value_opt = torch.optim.Adam(value.parameters(), lr=1e-2)
    crews = Crews(rank, world)
    telemetry = Telemetry(rank)
    for round_ in range(ROUNDS):
        seed = 10_000 * round_ + 100 * rank
        if crews.simulates:
            improve_policy(policy, value, policy_opt, crews.mine, seed)
        else:
            fit_value(value, value_opt, crews.mine, seed)
        telemetry.push(round_, policy[0].weight.detach().norm().item())
        crews.publish(policy, crews.lead["simulators"])
        crews.publish(value, crews.lead["critics"])
    telemetry.close()
    if rank == 0:
        print("mean norms", [f"{v:.3f}" for v in telemetry.log], flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
