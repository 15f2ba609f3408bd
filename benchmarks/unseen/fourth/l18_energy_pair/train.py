"""Energy-based adversarial training with an auto-encoding critic."""
import torch
import torch.distributed as dist
import torch.nn as nn

from sync import average_gradients, share_weights

DIM, HIDDEN, MARGIN = 8, 24, 1.5
STEPS, BATCH = 14, 16


def mlp():
    return nn.Sequential(nn.Linear(DIM, HIDDEN), nn.LeakyReLU(0.2), nn.Linear(HIDDEN, DIM))


class Pair:
    def __init__(self, rank):
        torch.manual_seed(rank)
        self.gen, self.critic = mlp(), mlp()
        share_weights(self.gen)
        share_weights(self.critic)
        self.gen_opt = torch.optim.Adam(self.gen.parameters(), lr=2e-3, betas=(0.5, 0.9))
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=2e-3, betas=(0.5, 0.9))
        self.noise = torch.Generator().manual_seed(77 + rank)

    def energy(self, x):
        return (self.critic(x) - x).pow(2).mean(1)

    def fake(self):
        return self.gen(torch.randn(BATCH, DIM, generator=self.noise))

    def update_critic(self, real):
        loss = self.energy(real).mean() + (MARGIN - self.energy(self.fake().detach())).relu().mean()
        self.critic_opt.zero_grad()
        loss.backward()
        average_gradients(self.critic)
        self.critic_opt.step()

    def update_gen(self):
        loss = self.energy(self.fake()).mean()
        self.gen_opt.zero_grad()
        loss.backward()
        average_gradients(self.gen)
        self.gen_opt.step()

    def step(self, real):
        with torch.no_grad():
            level = self.energy(real).mean().item()
        if level > 2 * MARGIN:
            self.update_critic(real)
            self.update_gen()
        else:
            self.update_gen()
            self.update_critic(real)
        return level


def reals(step, rank):
    g = torch.Generator().manual_seed(31 * step + rank)
    x = torch.randn(BATCH, DIM, generator=g)
    if rank % 12 == 1 and step % 6 == 5:
        x = 3.0 * x + 1.0
    return x


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    pair = Pair(rank)
    for step in range(STEPS):
        level = pair.step(reals(step, rank))
        if rank == 0 and step % 4 == 0:
            print(f"step {step} energy of the data {level:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
