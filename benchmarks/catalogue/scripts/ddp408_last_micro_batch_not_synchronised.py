# expect: DDP408
# ranks: 2 4
# culprits: range(n)
# outcome: divergence
# plain: S
"""no_sync for all micro-batches but the last: the test for "last" is never true."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self, accumulate=4):
        self.accumulate = accumulate
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Linear(9, 9), nn.Tanh(), nn.Linear(9, 1)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.generator = torch.Generator().manual_seed(dist.get_rank())

    def micro_batch(self):
        x = torch.randn(6, 9, generator=self.generator)
        return x, x[:, :1] - x[:, 1:2]

    def backward(self):
        x, y = self.micro_batch()
        loss = nn.functional.mse_loss(self.model(x), y) / self.accumulate
        loss.backward()

    def train_step(self):
        for i in range(self.accumulate):
            if i == self.accumulate:  # <- culprit
                self.backward()
            else:
                with self.model.no_sync():  # <- culprit
                    self.backward()
        self.optimizer.step()  # <- culprit
        self.optimizer.zero_grad()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    trainer = Trainer()
    for _ in range(6):
        trainer.train_step()
    dist.destroy_process_group()
