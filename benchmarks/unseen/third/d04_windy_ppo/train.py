"""PPO for a fleet of gliders: every rank flies at one site."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from envs import GliderEnv
from ppo import PPO


def policy():
    torch.manual_seed(21)
    return nn.Sequential(
        nn.Linear(GliderEnv.obs_dim, 32),
        nn.Tanh(),
        nn.Linear(32, GliderEnv.n_actions),
    )


def main(iterations=12, report_every=4):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(policy())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    agent = PPO(model, optimizer, GliderEnv(rank))

    reward = torch.zeros(1)
    for it in range(1, iterations + 1):
        reward += agent.iterate()
        if it % report_every == 0:
            mean = reward / report_every
            dist.all_reduce(mean)
            if rank == 0:
                lr = optimizer.param_groups[0]["lr"]
                print(f"iteration {it}: reward {mean.item() / world:.3f} lr {lr:.4f}", flush=True)
            reward.zero_()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
