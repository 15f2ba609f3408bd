import torch
import torch.distributed as dist
from torch import nn

from averaging import Ema, PeriodicAverager


class Augment:
    def __init__(self, rank):
        self.gen = torch.Generator().manual_seed(9000 + rank)

    def __call__(self, x):
        mask = torch.rand(x.shape, generator=self.gen) > 0.1
        return x * mask + 0.05 * torch.randn(x.shape, generator=self.gen)


class Worker:
    def __init__(self, cfg):
        self.cfg = cfg
        self.rank = dist.get_rank()
        torch.manual_seed(self.rank)
        self.net = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 3))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=cfg["lr"])
        self.averager = PeriodicAverager(self.net, cfg["period"], cfg["warmup"])
        self.augment = Augment(self.rank)
        self.ema = Ema(self.net) if self.rank == 0 else None

    def train(self):
        gen = torch.Generator().manual_seed(60 + self.rank)
        for step in range(self.cfg["steps"]):
            x = torch.randn(16, 10, generator=gen)
            y = x[:, :3].argmax(1)
            loss = nn.functional.cross_entropy(self.net(self.augment(x)), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            if self.averager.after_step() and self.ema:
                self.ema.update(self.net)
                self.report(step)
        return self

    @torch.no_grad()
    def report(self, step):
        x = torch.randn(128, 10, generator=torch.Generator().manual_seed(1))
        acc = (self.ema.shadow(x).argmax(1) == x[:, :3].argmax(1)).float().mean()
        print(f"step {step + 1} ema accuracy {acc:.3f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Worker({"lr": 0.1, "period": 5, "warmup": 2, "steps": 40}).train()
    dist.barrier()
    dist.destroy_process_group()
