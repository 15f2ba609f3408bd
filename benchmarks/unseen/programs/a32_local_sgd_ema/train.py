import os

import torch
import torch.distributed as dist
from torch import nn

from averaging import LocalSGD, ShadowModel


def problem(rank, n=160):
    g = torch.Generator().manual_seed(rank)
    x = torch.randn(n, 6, generator=g)
    return x, (x.abs().sum(1, keepdim=True) - 4.5)


class Run:
    def __init__(self):
        self.rank = dist.get_rank()
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.8)
        self.sync = LocalSGD(self.model, period=5, warmup=3)
        self.shadow = ShadowModel(self.model) if os.environ["RANK"] == "0" else None

    def train(self, steps):
        x, y = problem(self.rank)
        g = torch.Generator().manual_seed(900 + self.rank)
        for step in range(steps):
            pick = torch.randint(0, len(x), (8 + 4 * (self.rank % 3),), generator=g)
            loss = nn.functional.mse_loss(self.model(x[pick]), y[pick])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            if self.sync(step) and self.shadow:
                self.shadow.update(self.model)

    @torch.no_grad()
    def report(self):
        if self.shadow is None:
            return
        x, y = problem(rank=77)
        raw = nn.functional.mse_loss(self.model(x), y).item()
        ema = nn.functional.mse_loss(self.shadow.net(x), y).item()
        print(f"test loss {raw:.4f}, averaged weights {ema:.4f}", flush=True)


def main():
    dist.init_process_group("gloo")
    run = Run()
    for epoch in range(3):
        run.train(steps=20)
        run.report()
    weights = nn.utils.parameters_to_vector(run.model.parameters()).detach()
    other = weights.clone()
    dist.broadcast(other, src=dist.get_world_size() - 1)
    assert torch.allclose(weights, other, atol=1e-6)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
