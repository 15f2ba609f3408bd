import torch
import torch.distributed as dist
from torch import nn

from population import Population

SETTINGS = [
    {"lr": 5e-2, "gain": 1.0},
    {"lr": 1e-3, "gain": 6.0},
    {"lr": 3e-2, "gain": 1.2},
    {"lr": 2e-2, "gain": 0.8},
]


class Member:
    def __init__(self, rank, lr, gain):
        torch.manual_seed(rank)
        self.model = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 1))
        with torch.no_grad():
            self.model[0].weight.mul_(gain)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.gen = torch.Generator().manual_seed(99)
        self.w = torch.linspace(-1, 1, 10)

    def sample(self, n=32):
        x = torch.randn(n, 10, generator=self.gen)
        return x, (x @ self.w).unsqueeze(1)

    def train_steps(self, n):
        for _ in range(n):
            x, y = self.sample()
            loss = nn.functional.mse_loss(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()

    def novelty(self):
        flat = torch.cat([p.detach().flatten() for p in self.model.parameters()])
        return float(flat.abs().max() > 1.5)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    member = Member(rank, **SETTINGS[rank % len(SETTINGS)])
    population = Population(member.model)
    for generation in range(4):
        score = member.train_steps(6)
        population.report(score)
        if member.novelty():
            population.bonus(10.0)
        population.exploit()
        final = torch.tensor([score])
        dist.all_reduce(final, op=dist.ReduceOp.MIN)
        if rank == 0:
            print(f"generation {generation}: best {final.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
