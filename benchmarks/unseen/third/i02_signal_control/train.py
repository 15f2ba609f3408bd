import torch
import torch.distributed as dist

from ppo.env import Intersection
from ppo.learner import Agent, PPO

HORIZON, ITERATIONS, GAMMA = 16, 12, 0.95


@torch.no_grad()
def rollout(env, agent):
    obs, act, logp, rew = [], [], [], []
    for _ in range(HORIZON):
        o = env.observe()
        pi = agent.dist(o)
        a = pi.sample()
        obs.append(o)
        act.append(a)
        logp.append(pi.log_prob(a))
        rew.append(env.step(a))
    ret, acc = [], agent.v(env.observe()).squeeze(-1)
    for r in reversed(rew):
        acc = r + GAMMA * acc
        ret.append(acc)
    flat = [torch.cat(x) for x in (obs, act, logp, ret[::-1])]
    return flat, torch.stack(rew).mean()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(11)
    agent = Agent()
    torch.manual_seed(11 + rank)      # every intersection explores on its own
    env = Intersection(rank)
    ppo = PPO(agent)
    for it in range(ITERATIONS):
        batch, reward = rollout(env, agent)
        kl = ppo.update(*batch)
        stats = [None] * world
        dist.all_gather_object(stats, {"reward": reward.item(), "kl": kl})
        if rank == 0:
            mean = sum(s["reward"] for s in stats) / world
            print(f"iteration {it} reward {mean:.4f} kl {[round(s['kl'], 4) for s in stats]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
