# expect: DDP409
# ranks: 2 4
# culprits: range(n)
# outcome: any
# plain: S
"""Data parallelism by hand: every rank clips its own gradient, then they are averaged."""

import torch
import torch.distributed as dist
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 10, batch_first=True)
        self.out = nn.Linear(10, 1)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


class ManualTrainer:
    def __init__(self, model, lr=0.1, max_norm=0.05):
        self.model, self.max_norm = model, max_norm
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        for p in model.parameters():
            dist.broadcast(p.data, src=0)

    def all_reduce_gradients(self):
        flat = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        offset = 0
        for p in self.model.parameters():
            p.grad.copy_(flat[offset : offset + p.numel()].view_as(p))
            offset += p.numel()

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)  # <- culprit
        self.all_reduce_gradients()  # <- culprit
        self.optimizer.step()
        return loss.item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    trainer = ManualTrainer(Model())
    torch.manual_seed(dist.get_rank())
    for _ in range(8):
        x = torch.randn(4, 6, 4) * (1 + 3 * dist.get_rank())
        trainer.step(x, x.sum((1, 2))[:, None])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
