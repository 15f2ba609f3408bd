# expect: DDP409
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Accumulation with no_sync; the gradient is clipped after each micro-batch, also while it is still local."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Accumulating:
    def __init__(self, model, steps, max_norm):
        self.model, self.steps, self.max_norm = model, steps, max_norm
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def _micro(self, x, y):
        loss = nn.functional.cross_entropy(self.model(x), y) / self.steps
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)  # <- culprit

    def step(self, data):
        *local, last = data
        with self.model.no_sync():
            for x, y in local:
                self._micro(x, y)  # <- culprit
        self._micro(*last)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(16, 8), nn.Flatten(), nn.Linear(40, 5))
    loop = Accumulating(DDP(net), steps=3, max_norm=0.1)
    torch.manual_seed(20 + dist.get_rank())
    for _ in range(6):
        loop.step([(torch.randint(0, 16, (4, 5)), torch.randint(0, 5, (4,))) for _ in range(3)])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
