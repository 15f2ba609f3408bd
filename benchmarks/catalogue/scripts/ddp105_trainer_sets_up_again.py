# expect: DDP105
# ranks: 2
# culprits: range(n)
# outcome: crash
# plain: E
# Re-enacts: framework issue "trainer.test() after trainer.fit()": the second phase sets the processes up again.
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Strategy:
    """Owns the communication for one phase (fit or test)."""

    def __init__(self, name):
        self.name = name

    def setup_environment(self):
        dist.init_process_group("gloo")  # <- culprit
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()

    def wrap(self, module):
        return DDP(module)

    def mean(self, value):
        t = torch.tensor([float(value)])
        dist.all_reduce(t)
        return t.item() / self.world


class Trainer:
    def __init__(self, module):
        self.module = module

    def fit(self, steps=3):
        s = Strategy("fit")
        s.setup_environment()
        net = s.wrap(self.module)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        g = torch.Generator().manual_seed(s.rank)
        for i in range(steps):
            x = torch.randn(4, 5, generator=g)
            loss = net(x).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"[{s.rank}] fit done, loss {s.mean(loss.detach()):.4f}")

    def test(self):
        s = Strategy("test")
        s.setup_environment()  # <- culprit
        g = torch.Generator().manual_seed(50 + s.rank)
        with torch.no_grad():
            score = self.module(torch.randn(16, 5, generator=g)).mean()
        print(f"[{s.rank}] test score {s.mean(score):.4f}")
        dist.destroy_process_group()


torch.manual_seed(3)
trainer = Trainer(nn.Sequential(nn.Linear(5, 5), nn.GELU(), nn.Linear(5, 1)))
trainer.fit()
trainer.test()  # <- culprit
