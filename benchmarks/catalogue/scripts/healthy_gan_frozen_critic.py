# expect: none
# ranks: 2 4
# culprits: any
# outcome: ok
# plain: S
"""WGAN with five critic steps per generator step. The generator step goes past the critic's wrapper on purpose:
its gradients for the critic are not wanted, so there is nothing to average."""
from contextlib import contextmanager
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def mlp(inp, out):
    return nn.Sequential(nn.Linear(inp, 16), nn.LeakyReLU(0.2), nn.Linear(16, out))


@contextmanager
def frozen(module):
    for p in module.parameters():
        p.requires_grad_(False)
    try:
        yield module
    finally:
        for p in module.parameters():
            p.requires_grad_(True)


class WGan:
    def __init__(self, clip=0.1, critic_steps=5):
        torch.manual_seed(10)
        self.gen, self.critic = DDP(mlp(3, 2)), DDP(mlp(2, 1))
        self.opt_gen = torch.optim.RMSprop(self.gen.parameters(), lr=1e-3)
        self.opt_critic = torch.optim.RMSprop(self.critic.parameters(), lr=1e-3)
        self.clip, self.critic_steps = clip, critic_steps
        # noise must not be the same on all ranks
        self.source = torch.Generator().manual_seed(1000 + dist.get_rank())

    def noise(self, n):
        return torch.randn(n, 3, generator=self.source)

    def critic_step(self, real):
        with torch.no_grad():
            fake = self.gen.module(self.noise(len(real)))
        score = self.critic(torch.cat([real, fake])).squeeze(-1)
        loss = score[len(real):].mean() - score[:len(real)].mean()
        self.opt_critic.zero_grad()
        loss.backward()
        self.opt_critic.step()
        with torch.no_grad():
            for p in self.critic.parameters():
                p.clamp_(-self.clip, self.clip)
        return loss.detach()

    def generator_step(self, n):
        with frozen(self.critic.module) as critic:
            loss = -critic(self.gen(self.noise(n))).mean()
            self.opt_gen.zero_grad()
            loss.backward()
        self.opt_gen.step()


def real_batches(rank, count, batch=8):
    gen = torch.Generator().manual_seed(300 + rank)
    for _ in range(count):
        yield torch.randn(batch, 2, generator=gen) * 0.3 + 1.0


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    gan = WGan()
    for number, real in enumerate(real_batches(rank, 20), start=1):
        distance = gan.critic_step(real)
        if number % gan.critic_steps == 0:
            gan.generator_step(len(real))
            dist.reduce(distance, dst=0)
            if rank == 0:
                print(number, "distance", round(-distance.item() / dist.get_world_size(), 5), flush=True)
    time.sleep(0.3)  # let the last log lines out
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
