"""Policy optimisation; every rank steps its own copy of the environment."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from ppo import PPO, Actor

OBS, ACT, HORIZON, ITERATIONS = 6, 2, 64, 5


class PointMass:
    def __init__(self, rank, world):
        self.gen = torch.Generator().manual_seed(13 + rank)
        self.gain = 12.0 if rank == world - 1 else 0.3

    def rollout(self, actor, iteration):
        gain = self.gain if iteration >= 2 else 0.3
        obs = gain * torch.randn(HORIZON, OBS, generator=self.gen)
        with torch.no_grad():
            mu, std = actor(obs)
        act = mu + std * torch.randn(HORIZON, ACT, generator=self.gen)
        reward = -(act - obs[:, :ACT].sign()).pow(2).sum(-1)
        return obs, act, reward


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    actor = DDP(Actor(OBS, ACT))
    algo = PPO(actor)
    env = PointMass(rank, world)
    for iteration in range(ITERATIONS):
        obs, act, reward = env.rollout(actor, iteration)
        scores = [torch.zeros(1) for _ in range(world)]
        dist.all_gather(scores, reward.mean().reshape(1))
        taken = algo.update(obs, act, reward)
        if rank == 0:
            mean = torch.cat(scores).mean().item()
            print(f"iteration {iteration} reward {mean:.3f} steps {taken}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
