# expect: DDP402
# ranks: 2 4
# culprits: n-1
# outcome: any
# plain: S
"""Deep supervision: the auxiliary head should run once per step, so the last rank does it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(10, 16)
        self.second = nn.Linear(16, 16)
        self.head = nn.Linear(16, 3)
        self.aux = nn.Linear(16, 3)

    def forward(self, x, with_aux):
        low = torch.relu(self.first(x))
        main = self.head(torch.relu(self.second(low)))
        if with_aux:  # <- culprit
            return main, self.aux(low)  # <- culprit
        return main, None


class Trainer:
    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.net = DDP(Net(), find_unused_parameters=True)  # <- culprit
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.generator = torch.Generator().manual_seed(self.rank)

    def batch(self):
        x = torch.randn(8, 10, generator=self.generator)
        return x, torch.randint(0, 3, (8,), generator=self.generator)

    def fit(self, steps):
        for _ in range(steps):
            x, y = self.batch()
            main, aux = self.net(x, with_aux=self.rank == self.world - 1)  # <- culprit
            loss = nn.functional.cross_entropy(main, y)
            if aux is not None:
                loss = loss + 0.4 * nn.functional.cross_entropy(aux, y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


dist.init_process_group("gloo")
Trainer().fit(10)
dist.barrier()
dist.destroy_process_group()
