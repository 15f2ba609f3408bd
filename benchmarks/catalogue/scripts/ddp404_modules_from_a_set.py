# expect: DDP404
# ranks: 2 4
# culprits: any
# outcome: any
# plain: S
"""One gate per feature; the names of the features are a set, whose order is another in each process."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FEATURES = {"age", "income", "region", "device", "clicks", "visits", "basket", "weekday", "browser", "campaign"}


class Gates(nn.Module):
    def __init__(self):
        super().__init__()
        for name in FEATURES:  # <- culprit
            self.add_module(name, nn.Linear(3, 3))  # <- culprit
        self.out = nn.Linear(3, 1)

    def forward(self, inputs):
        total = 0
        for name in sorted(FEATURES):
            total = total + torch.sigmoid(getattr(self, name)(inputs[name]))
        return self.out(total)


def batch(generator):
    inputs = {name: torch.randn(6, 3, generator=generator) for name in sorted(FEATURES)}
    return inputs, inputs["clicks"].sum(1, keepdim=True)


class Loop:
    def __init__(self):
        dist.init_process_group("gloo")
        torch.manual_seed(0)
        self.model = DistributedDataParallel(Gates())  # <- culprit
        self.opt = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.generator = torch.Generator().manual_seed(dist.get_rank())

    def run(self, steps):
        for step in range(steps):
            inputs, wanted = batch(self.generator)
            loss = (self.model(inputs) - wanted).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            if step % 5 == 0 and dist.get_rank() == 0:
                print(f"{step=} {loss.item():.3f}")


if __name__ == "__main__":
    Loop().run(12)
    dist.destroy_process_group()
